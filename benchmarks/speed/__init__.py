"""Speed benchmarks of this code; most run two ways in one process and print their ratio.

bench_probe.py      seven learning rates together against one
bench_rates.py      learning rates of few labels one after another against side by side
bench_crops.py      random crops of photographs against torchvision's usual pipeline
bench_features.py   frozen features in bfloat16 against float32
bench_svm.py        the batched SVM solver against scikit-learn's
bench_detection.py  both detection engines
bench_annotations.py  COCO's annotations parsed by each process against mapped by all
bench_commands.py   command lines that compute nothing: seconds and memory
bench_slurm.py      a cell in a job array against a bare process
clock.py            time of a measurement
"""
