"""A local plugin (``--plugin nodes.py``): writes down, in the file that ``NODES_FILE`` names, on
which Ray node each actor started."""

import os

from axisrl.plugins import hookimpl


@hookimpl
def axisrl_worker_started(worker):
    import ray

    node = ray.get_runtime_context().get_node_id()
    with open(os.environ["NODES_FILE"], "a") as notes:
        notes.write(f"{worker.role} {worker.rank} {node}\n")
