#!/bin/bash
# Train on three hosts simulated on one Linux machine. Requires root and the extra `cluster`.
# Arguments of the script are passed to `train`.
set -eu
folder=$(mktemp --directory) # for Ray's logs and sockets, whose paths must be short

# Clean up, however the script ends.
clean_up() {
    set +e # a process may end before it is killed
    for host in 1 2 3; do
        ip netns pids host$host | xargs --no-run-if-empty kill -9
        ip netns delete host$host
    done
    ip netns delete switch
    rm -r "$folder"
}
trap clean_up EXIT

# Each host is a network namespace with one cable to a switch, isolated from all other networks.
ip netns add switch
ip -n switch link add name bridge type bridge
ip -n switch link set bridge up
for host in 1 2 3; do
    ip netns add host$host
    ip -n switch link add port$host type veth peer name eth0 netns host$host
    ip -n switch link set port$host master bridge up
    ip -n host$host address add 10.99.0.$host/24 dev eth0
    ip -n host$host link set eth0 up
    ip -n host$host link set lo up
done

# One secret for all hosts: anyone who has it can run code on them.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/token
head --bytes 32 /dev/urandom | base64 > "$folder/token"

# Detect dead hosts and cut cables sooner than by default; `cluster check` prints the times.
export RAY_health_check_initial_delay_ms=1000 RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=2000 RAY_health_check_failure_threshold=3
export RAY_worker_niceness=0 # on one machine, actors and gateways need the same priority as the learner

# Host 1 is Ray's head and runs the learner, but no actors. The other hosts join it in parallel.
ip netns exec host1 ray start --head --node-ip-address 10.99.0.1 --port 6379 --num-cpus 0 --temp-dir "$folder/1"
for host in 2 3; do
    ip netns exec host$host ray start --address 10.99.0.1:6379 --node-ip-address 10.99.0.$host --num-cpus 4 \
        --temp-dir "$folder/$host" &
done
wait

# Start the run. Meanwhile, in another terminal:
#   kill -9 $(ip netns pids host2)         kills host 2: its actors restart on host 3
#   ip -n switch link set port2 down       cuts its cable
ip netns exec host1 python -m replay_tutorial train CartPole-v1 --cluster 10.99.0.1:6379 --actors 4 "$@"
