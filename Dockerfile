# An image for the hosts of a cluster, the learner's and the actors':
#     docker build -t you/apex:1 .
#     docker build --build-arg BASE=rayproject/ray:2.60.0-py312-cpu -t you/apex:1-cpu .    # no GPU: smaller
# Run it with `--shm-size 2g`: Ray's object store lies in /dev/shm, of which Docker gives 64 MB. The replay doesn't.
ARG BASE=rayproject/ray:2.60.0-py312-gpu
FROM ${BASE}
COPY --chown=ray . /home/ray/replay_tutorial
RUN pip install --no-cache-dir -c /home/ray/replay_tutorial/constraints.txt \
        "/home/ray/replay_tutorial[cluster,games]" \
    && python -m replay_tutorial warm-up
