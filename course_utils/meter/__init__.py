"""The meter: run code in slow motion and count what it does to memory."""

from course_utils.meter.meter import Meter
from course_utils.meter.traffic import ArgumentTraffic, Finding, Launch, Traffic

__all__ = ["ArgumentTraffic", "Finding", "Launch", "Meter", "Traffic"]
