"""Any command or callable as jobs of a SLURM cluster, through submitit; knows nothing of images.

resources.py  what a job asks of the cluster, and the queue that it waits in
submit.py     arrays of jobs, after one another, all submitted or none
requeue.py    a command as a job: hands on signals, is started again where it can go on
ranks.py      the processes of a job find each other, as under torchrun
cluster.py    what the cluster's configuration can do, and what to ask its administrator for
state.py      where jobs are, also without accounting; cancel them
__main__.py   python -m slurm: one command as a job, on one node or several
"""
