"""A local plugin (``--plugin gpus.py``): writes down, in the file that ``GPUS_FILE`` names, which
GPUs Ray gave each actor."""

import os

from axisrl.plugins import hookimpl


@hookimpl
def axisrl_worker_started(worker):
    import ray

    given = ",".join(map(str, ray.get_gpu_ids()))
    with open(os.environ["GPUS_FILE"], "a") as notes:
        notes.write(f"{worker.role} {worker.rank} {given or 'none'}\n")
