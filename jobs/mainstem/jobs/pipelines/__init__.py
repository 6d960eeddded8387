"""Spark's declared pipelines (`pyspark.pipelines`) over topics: a project to begin with, runs of
it, and what became of the last ones. The pipelines themselves are Spark's.
"""

from mainstem.jobs.pipelines.pipeline_project import PipelineError, Project, init_project
from mainstem.jobs.pipelines.pipeline_runs import (
    COMPLETED,
    FAILED,
    KILLED,
    RUNNING,
    STOPPED,
    PipelineRun,
    PipelineRuns,
)
from mainstem.jobs.pipelines.run_pipeline import run_pipeline

__all__ = [
    "COMPLETED",
    "FAILED",
    "KILLED",
    "RUNNING",
    "STOPPED",
    "PipelineError",
    "PipelineRun",
    "PipelineRuns",
    "Project",
    "init_project",
    "run_pipeline",
]
