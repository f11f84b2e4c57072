#!/bin/bash
# job-template.sh - the script of each batch job. Abies replaces {{name}} by a shell-quoted value:
#   batch_job_id project queue num_nodes wall_time_min job_mode site_path abies_bin launcher_cmd
#   tag_args (one --tag each)   part_args (one --part each)   param_NAME (optional_batch_job_params)
# Directives of your batch system go here, e.g.  #SBATCH --constraint={{param_constraint}}
set -eu

export ABIES_SITE_PATH={{site_path}}
export ABIES_BATCH_JOB_ID={{batch_job_id}}
export PATH={{abies_bin}}:"$PATH"
cd "$ABIES_SITE_PATH"

# the launcher leaves before the batch system would kill it
minutes={{wall_time_min}}
[ "$minutes" -le 2 ] || minutes=$((minutes - 2))

exec {{launcher_cmd}} -j {{job_mode}} -t "$minutes" {{tag_args}} {{part_args}}
