#!/usr/bin/env bash
# Text of 100 languages into the token store that a run reads, by 64 tasks on SLURM. On a machine from which jobs are sent:
#     TEXT=$HOME/text VOCABULARY=FacebookAI/xlm-roberta-base PARTITION=cpu bash examples/prepare_100_languages.sh
# It returns when the jobs wait. After an interruption, the same command makes what is missing.
set -euo pipefail

# datatrove hands the tasks to sbatch: pip install datatrove
# all languages that the folder has are read; --output puts the store into another folder
xlnb prepare "$TEXT" --vocabulary "$VOCABULARY" --executor slurm --partition "$PARTITION" \
    --tasks "${TASKS:-64}" --time "${TIME:-24:00:00}" ${OPTIONS:-}
