"""Weighted metrics: scores of a whole dialogue by metric, and their weighted sum from 0 to 100."""

from curate.judging.metrics.catalogue import Metric, as_response, shipped
from curate.judging.metrics.config import MetricChoice, MetricsConfig, OwnMetric
from curate.judging.metrics.metric_judge import score_metrics
from curate.judging.metrics.metric_prompts import prompt_version
