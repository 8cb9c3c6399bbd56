"""Any command or callable as jobs of a SLURM cluster, through submitit.

resources.py  size and length of a job, and the queue that it waits in
submit.py     submits arrays of jobs, all of them or none
requeue.py    a command as a job that passes signals on and is started again; its ranks
cluster.py    the cluster's configuration, and warnings about what it lacks
state.py      states and logs of jobs, also without accounting; cancels jobs
__main__.py   python -m slurm: one command as a job, on one node or several
"""
