# abies.cmake - compiler settings and the few functions that every folder uses
#
#   ab_library(NAME  SOURCES a.c b.c  [SQL a.sql]  [LINK base schema]  [EXTERNAL PkgConfig::X])
#       static library ab_NAME. Its headers are seen as "NAME/x.h" by whoever links it, and by nobody else.
#   ab_program(NAME  SOURCES main.c  [SQL a.sql]  [LINK service]  [EXTERNAL ...]  [LIBEXEC])
#       executable NAME, in bin/ (or libexec/abies/ with LIBEXEC), in the build tree as after install.
#   ab_test(NAME     SOURCES test_x.c  [SQL x.sql]  [LINK base]  [EXTERNAL ...]  [LABEL unit])
#       cmocka program, run by ctest under its label.
#   ab_pytest(NAME test_x.py  LABEL  [VAR=value ...])
#       Python test, run by the system's Python, which has the modules; with these variables set.
include_guard()
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

foreach(lib jansson msgpack libczmq libzmq libpq libwebsockets libuv libcurl yaml-0.1 libsodium libcrypto libssl cmocka)
    string(REGEX REPLACE "[^a-z]" "" var "${lib}")
    pkg_check_modules(${var} REQUIRED IMPORTED_TARGET ${lib})
endforeach()

# libwslay comes without a .pc file
find_library(WSLAY_LIBRARY wslay REQUIRED)
add_library(PkgConfig::libwslay INTERFACE IMPORTED GLOBAL)
target_link_libraries(PkgConfig::libwslay INTERFACE "${WSLAY_LIBRARY}")

# Assertions stay: they are about our own mistakes, and cost nothing that can be measured.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(AB_LIBEXEC "libexec/abies")
set(AB_SHARE "share/abies")

set(AB_SANITIZE "" CACHE STRING "sanitizers, e.g. address,undefined")
option(AB_FUZZ "build the fuzz targets (clang)" OFF)
option(AB_COVERAGE "count lines" OFF)
option(AB_TESTS "build the tests" ON)
option(AB_FAULTS "named fault points for tests (off in a release build)" ON)

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla -Werror
                    -Wno-format-zero-length -Wno-unused-result              # (void)f() ignores on purpose
                    $<$<C_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized> # what an optimizer believes depends on its version
                    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>          # snprintf cuts on purpose
                    -fno-omit-frame-pointer -D_GNU_SOURCE)
add_compile_definitions(AB_VERSION="${PROJECT_VERSION}")
if(AB_FAULTS)
    add_compile_definitions(AB_FAULTS=1)
endif()
if(AB_SANITIZE)
    add_compile_options(-fsanitize=${AB_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${AB_SANITIZE})
endif()
if(AB_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(AB_COVERAGE)
    add_compile_options(--coverage)
    add_link_options(--coverage)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # Assertions and debug information name files from the top of the tree, wherever it was built.
    add_compile_options(-D_FORTIFY_SOURCE=2 -fstack-protector-strong
                        "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=" "-ffile-prefix-map=${CMAKE_BINARY_DIR}=build")
endif()

# A folder that is not there yet is left out.
function(ab_folders)
    foreach(folder ${ARGN})
        if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt")
            add_subdirectory(${folder})
        endif()
    endforeach()
endfunction()

macro(ab__parse)
    cmake_parse_arguments(ARG "LIBEXEC" "LABEL" "SOURCES;SQL;LINK;EXTERNAL" ${ARGN})
    list(TRANSFORM ARG_LINK PREPEND ab_)
endmacro()

# "NAME/x.h" works for those that link NAME: a folder of its own with one link in it.
function(ab__headers target name)
    set(farm "${CMAKE_BINARY_DIR}/include/${name}")
    file(MAKE_DIRECTORY "${farm}")
    if(NOT EXISTS "${farm}/${name}")
        file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${farm}/${name}" SYMBOLIC)
    endif()
    target_include_directories(${target} PUBLIC "${farm}")
endfunction()

# lease.sql -> lease.sql.h (struct ab_sql SQL_<block> for each block, and lease_sql[]) and its C file
function(ab__sql target)
    foreach(sql ${ARGN})
        get_filename_component(base "${sql}" NAME_WE)
        set(dir "${CMAKE_CURRENT_BINARY_DIR}/sql")
        add_custom_command(
            OUTPUT "${dir}/${base}.sql.c" "${dir}/${base}.sql.h"
            COMMAND ${CMAKE_COMMAND} -E make_directory "${dir}"
            COMMAND embed_sql "${CMAKE_CURRENT_SOURCE_DIR}/${sql}" "${dir}/${base}.sql"
            DEPENDS embed_sql "${CMAKE_CURRENT_SOURCE_DIR}/${sql}" VERBATIM)
        target_sources(${target} PRIVATE "${dir}/${base}.sql.c" "${dir}/${base}.sql.h")
        target_include_directories(${target} PUBLIC "${dir}")
    endforeach()
endfunction()

function(ab_library name)
    ab__parse(${ARGN})
    add_library(ab_${name} STATIC ${ARG_SOURCES})
    ab__headers(ab_${name} ${name})
    ab__sql(ab_${name} ${ARG_SQL})
    target_link_libraries(ab_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_EXTERNAL} Threads::Threads m)
endfunction()

function(ab_program name)
    ab__parse(${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    ab__sql(${name} ${ARG_SQL})
    target_link_libraries(${name} PRIVATE ${ARG_LINK} ${ARG_EXTERNAL} Threads::Threads m)
    if(ARG_LIBEXEC)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${AB_LIBEXEC}")
        install(TARGETS ${name} DESTINATION ${AB_LIBEXEC})
    else()
        install(TARGETS ${name} DESTINATION bin)
    endif()
endfunction()

function(ab_test name)
    ab__parse(${ARGN})
    if(NOT ARG_LABEL)
        set(ARG_LABEL unit)
    endif()
    add_executable(${name} ${ARG_SOURCES})
    ab__sql(${name} ${ARG_SQL})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests/lib")
    target_link_libraries(${name} PRIVATE ${ARG_LINK} ${ARG_EXTERNAL} PkgConfig::cmocka Threads::Threads m)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300)
    if(AB_SANITIZE MATCHES thread)
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
    endif()
endfunction()

function(ab_pytest name file label)
    find_program(AB_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
    if(NOT AB_PYTHON)
        return()
    endif()
    add_test(NAME ${name} COMMAND "${AB_PYTHON}" -m pytest -q -p no:cacheprovider "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 300 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;${ARGN}")
endfunction()
