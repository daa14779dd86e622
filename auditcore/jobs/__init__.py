"""Specs in, run folders out: the only place where steps are strung together.

Model code is imported inside functions only.
"""

from auditcore.jobs.estimate import Plan
from auditcore.jobs.plan import plan
from auditcore.jobs.queue import cancel, prepare_resume, queue, require_unchanged, resume, submit
from auditcore.jobs.worker import execute

__all__ = ["Plan", "cancel", "execute", "plan", "prepare_resume", "queue", "require_unchanged", "resume", "submit"]
