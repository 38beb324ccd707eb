"""Plots of the chapters. Each carries its numbers' origin and returns nothing: it shows one figure."""

from playbook.plots.charts import arrivals as arrivals
from playbook.plots.charts import bars as bars
from playbook.plots.charts import batching as batching
from playbook.plots.charts import in_flight as in_flight
from playbook.plots.charts import life as life
from playbook.plots.charts import lines as lines
from playbook.plots.charts import requests as requests
from playbook.plots.charts import rounding as rounding
from playbook.plots.charts import stacked as stacked
from playbook.plots.charts import throughput_latency as throughput_latency
from playbook.plots.deployment import request_path as request_path
from playbook.plots.deployment import updates as updates
from playbook.plots.inside import cuts as cuts
from playbook.plots.inside import heads as heads
from playbook.plots.inside import kernels as kernels
from playbook.plots.inside import schedule as schedule
from playbook.plots.planner import frontier as frontier
from playbook.plots.planner import roofline as roofline
from playbook.plots.quantization import channels as channels
from playbook.plots.quantization import intervals as intervals
from playbook.plots.quantization import number_lines as number_lines
