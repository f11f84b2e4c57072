/* number.c - a double as text, the way Python prints it */
#include "number.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* d.ddde[+-]xx with the fewest digits that read back as v -> digits without the point, exponent. */
static int shortest(double v, char digits[20], int *exponent)
{
    char text[AB_NUMBER_TEXT];
    int precision =
        v < 0x1p-1022 ? 0 : 14; /* 15 digits always survive, but for the smallest numbers */
    for (; precision <= 16; precision++) {
        snprintf(text, sizeof(text), "%.*e", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    char *e = strchr(text, 'e');
    *exponent = (int)strtol(e + 1, NULL, 10);
    int n = 0;
    for (char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return n;
}

size_t ab_number_text(double v, char out[AB_NUMBER_TEXT])
{
    if (isnan(v))
        return (size_t)snprintf(out, AB_NUMBER_TEXT, "nan");
    if (isinf(v))
        return (size_t)snprintf(out, AB_NUMBER_TEXT, v < 0 ? "-inf" : "inf");
    if (fabs(v) < 1e15 && v == (double)(int64_t)v)
        return (size_t)snprintf(out, AB_NUMBER_TEXT, "%s%lld.0", signbit(v) ? "-" : "",
                                (long long)fabs(v));
    char digits[20];
    int exponent, n = shortest(fabs(v), digits, &exponent);
    const char *sign = v < 0 ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, AB_NUMBER_TEXT, "%s%c%s%se%c%02d", sign, digits[0],
                                n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                                abs(exponent));
    if (exponent < 0)
        return (size_t)snprintf(out, AB_NUMBER_TEXT, "%s0.%.*s%s", sign, -exponent - 1, "0000",
                                digits);
    if (n <= exponent + 1) /* a whole number: fill up with zeros */
        return (size_t)snprintf(out, AB_NUMBER_TEXT, "%s%s%.*s.0", sign, digits, exponent + 1 - n,
                                "0000000000000000");
    return (size_t)snprintf(out, AB_NUMBER_TEXT, "%s%.*s.%s", sign, exponent + 1, digits,
                            digits + exponent + 1);
}
