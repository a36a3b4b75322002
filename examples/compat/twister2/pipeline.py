"""Preparation and training as a graph, in Twister2Flow's spelling: `python pipeline.py`."""

from trek.compat.twister2flow.twister2.pipeline import PipelineGraph
from trek.compat.twister2flow.twister2.task.PytorchTask import PytorchTask
from trek.compat.twister2flow.twister2.task.Twister2Task import Twister2Task

prepare = Twister2Task(name="prepare")
prepare.set_command("twister2 submit standalone python")
prepare.set_script_path(script_path="prepare.py")

train = PytorchTask(name="train", parallelism=2)
train.set_script_path(script_path="train.py")

pipeline = PipelineGraph.PipelineGraph(name="digits")
pipeline.add_task(prepare)
pipeline.add_task(train)
pipeline.execute()
