#!/bin/bash
# Ape-X on Slurm, for `sbatch`: the first node runs the learner, all others run actors.
#
# NOT YET TESTED ON A SLURM CLUSTER. The script was run with stand-ins for Slurm and Ray. Monitor your first
# run.
#
# Cost: five nodes for the duration of the run, at most the time limit below.
#
# Requirements: the package and Ray in an environment that all nodes share, for example in your home folder.
# Run:
#     python -m replay_tutorial cluster launch slurm > apex.sh
#     sbatch apex.sh                                 # trains ALE/Seaquest-v5 with 64 actors
#     sbatch apex.sh train ALE/Pong-v5 --seed 1
#     sbatch apex.sh resume runs/NAME
# Five minutes before the time limit, the run writes a checkpoint and ends. To SHUT DOWN earlier:
#     scancel --batch --signal=TERM JOB
# When the job ends, the nodes are released, and no Ray processes remain on them.

#SBATCH --job-name=apex
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gres=gpu:1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300

set -eu

# One token for all nodes, because other users of the cluster can reach Ray's ports.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
[ -f ~/.ray/auth_token ] || ray get-auth-token --generate > /dev/null
chmod 600 ~/.ray/auth_token

# Detect lost nodes and cut cables sooner than by default; `cluster check` prints the times.
export RAY_health_check_initial_delay_ms=1000 RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=2000 RAY_health_check_failure_threshold=3

# This job has its own port and folder, because jobs may share nodes. Ray requires a short path.
port=$((20000 + SLURM_JOB_ID % 10000))
folder=/tmp/ray-$SLURM_JOB_ID
address=$(hostname --all-ip-addresses | cut --delimiter ' ' --fields 1)
others=$((SLURM_NNODES - 1))

# This script runs on the first node.
ray start --head --node-ip-address "$address" --port "$port" --num-cpus 0 --temp-dir "$folder" \
    --object-store-memory 2000000000 --include-dashboard=false
srun --relative=1 --nodes="$others" --ntasks="$others" ray start --address "$address:$port" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --temp-dir "$folder" --object-store-memory 2000000000 --block &

# The command waits until all actors fit. A resumed run keeps its number of actors.
[ $# -gt 0 ] || set -- train ALE/Seaquest-v5
[ "$1" = resume ] || set -- "$@" --actors "$((others * SLURM_CPUS_PER_TASK))"
# The run handles SIGTERM like Ctrl-C. The signal may arrive before the shell knows the run's process ID.
trap 'if [ -n "${run-}" ]; then kill -TERM "$run"; else stopped=1; fi' TERM
python -m replay_tutorial "$@" --cluster "$address:$port" --no-progress &
run=$!
[ -z "${stopped-}" ] || kill -TERM "$run"
wait $run || wait $run      # the first `wait` returns at the signal, the second when the run has ended
