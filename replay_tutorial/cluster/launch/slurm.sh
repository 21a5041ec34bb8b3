#!/bin/bash
# Ape-X on Slurm, for `sbatch`: the first node is the learner's, all others are full of actors.
#
# NOT RUN ON A SLURM CLUSTER YET. Its commands were run with stand-ins for Slurm and Ray. Stay beside the
# first one.
#
# What it costs: five nodes for as long as the run takes, at most the time below.
#
# Before: the package and Ray in an environment that all nodes see, in your home for example. Then:
#     python -m replay_tutorial cluster launch slurm > apex.sh
#     sbatch apex.sh                                 # trains ALE/Seaquest-v5 with 64 actors
#     sbatch apex.sh train ALE/Pong-v5 --seed 1
#     sbatch apex.sh resume runs/NAME
# Five minutes before its time is over the run writes a checkpoint and ends. To END IT sooner:
#     scancel --batch --signal=TERM JOB
# The nodes are free when the job has ended: nothing of Ray stays on them.

#SBATCH --job-name=apex
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gres=gpu:1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300

set -eu

# One secret for all nodes: other users of the cluster reach Ray's ports, too.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
[ -f ~/.ray/auth_token ] || ray get-auth-token --generate > /dev/null
chmod 600 ~/.ray/auth_token

# A lost node is noticed after 3 seconds, a cut cable after 9. Ray's own settings: 15 and 65.
export RAY_health_check_initial_delay_ms=1000 RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=2000 RAY_health_check_failure_threshold=3

# Of this job alone, since nodes may be shared: port, and folder (whose path must be short).
port=$((20000 + SLURM_JOB_ID % 10000))
folder=/tmp/ray-$SLURM_JOB_ID
address=$(hostname --all-ip-addresses | cut --delimiter ' ' --fields 1)
others=$((SLURM_NNODES - 1))

# This script runs on the first node.
ray start --head --node-ip-address "$address" --port "$port" --num-cpus 0 --temp-dir "$folder" \
    --object-store-memory 2000000000 --include-dashboard=false
srun --relative=1 --nodes="$others" --ntasks="$others" ray start --address "$address:$port" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --temp-dir "$folder" --object-store-memory 2000000000 --block &

# It waits until there is a place for each actor. A resumed run has its own number of actors.
[ $# -gt 0 ] || set -- train ALE/Seaquest-v5
[ "$1" = resume ] || set -- "$@" --actors "$((others * SLURM_CPUS_PER_TASK))"
python -m replay_tutorial "$@" --cluster "$address:$port" --no-progress &
run=$!
trap 'kill -TERM $run' TERM # which the run takes for Ctrl-C
wait $run || wait $run      # the first one ends with the signal, the second one with the run
