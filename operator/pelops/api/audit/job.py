"""How and where an audit runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from pelops.api.schema.base import ApiModel, Rule, RuleReason, cel

_NUMBERS: Final = {
    "minute": "[0-5]?[0-9]",
    "hour": "([01]?[0-9]|2[0-3])",
    "day": "(0?[1-9]|[12][0-9]|3[01])",
    "month": "(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))",
    "weekday": "([0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))",
}


def _cron_field(number: str) -> str:
    one = f"([*?]|{number}(-{number})?)(/[1-9][0-9]?)?"
    return f"{one}(,{one})*"


_CRON: Final = " +".join(_cron_field(number) for number in _NUMBERS.values())
CRON_PATTERN: Final = f"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{_CRON})$"
_SCHEDULE_RULES = cel(
    Rule(
        rule="!self.contains('TZ=')",
        message="the time zone belongs into spec.timeZone",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule=f"self.contains('TZ=') || self.matches('{CRON_PATTERN}')",
        message="schedule must be a cron expression of five fields (minute, hour, day, month,"
        " weekday), such as */15 * * * *, or one of @hourly, @daily, @weekly, @monthly, @yearly",
    ),
)
Schedule = Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=_SCHEDULE_RULES)]
_ZONE_RULES = cel(
    Rule(
        rule="self.matches('^(UTC|[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+)$')",
        message="timeZone must be UTC or a name such as Europe/Berlin",
    )
)
TimeZone = Annotated[str, Field(min_length=1, max_length=64, json_schema_extra=_ZONE_RULES)]
OpenObject = Annotated[dict[str, Any], Field(max_length=64)]


class BackendType(StrEnum):
    """What runs the job."""

    CRON_JOB = "CronJob"
    SPARK_APPLICATION = "SparkApplication"


class SparkOperator(StrEnum):
    """Whose SparkApplication it is."""

    KUBEFLOW = "Kubeflow"
    APACHE = "Apache"


class BackendSpec(ApiModel):
    """What runs the job: one pod, or a Spark operator."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="self.type != 'SparkApplication' || has(self.sparkOperator)",
                message="sparkOperator must say whose SparkApplication it is: Kubeflow or Apache",
                field_path=".sparkOperator",
                reason=RuleReason.REQUIRED,
            ),
            Rule(
                rule="self.type != 'CronJob' || (!has(self.sparkOperator) && !has(self.executors))",
                message="sparkOperator and executors belong to type SparkApplication",
                field_path=".type",
                reason=RuleReason.FORBIDDEN,
            ),
            Rule(
                rule="!has(self.sparkOperator) || self.sparkOperator != 'Apache'"
                " || !has(self.executors)",
                message="with sparkOperator Apache the job runs in its driver alone: leave out"
                " executors",
                field_path=".executors",
                reason=RuleReason.FORBIDDEN,
            ),
        )
    )

    type: BackendType = Field(
        default=BackendType.CRON_JOB,
        description="CronJob: one pod that runs Spark inside of itself (local[*]); enough for a"
        " billion entries a day. SparkApplication: an application of a Spark operator, which must"
        " be installed, and whose kinds the operator's role must allow.",
    )
    spark_operator: SparkOperator | None = Field(
        default=None,
        description="Kubeflow: a ScheduledSparkApplication of sparkoperator.k8s.io/v1beta2. Apache:"
        " a SparkApplication of spark.apache.org/v1 for each run.",
    )
    executors: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="Number of executor pods of a Kubeflow SparkApplication; none unless said: the"
        " driver does all.",
    )
