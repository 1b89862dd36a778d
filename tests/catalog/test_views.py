"""Views follow from the columns of the tables: the same names, the same types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import pytest

from siteatlas.catalog.domains import CandidateView, DomainView
from siteatlas.catalog.problems import ProblemView
from siteatlas.catalog.scans import ScanView
from siteatlas.catalog.sitemaps import SitemapView
from siteatlas.catalog.views import select_view
from siteatlas.queue.views import AttemptView, JobView, WorkerView
from siteatlas.storage.models import (
    Base,
    Candidate,
    Domain,
    DomainProblem,
    Job,
    JobAttempt,
    Scan,
    Sitemap,
    Worker,
)

# Fields of which the view makes something else.
MADE_BY_THE_VIEW = {(ScanView, "job_id"), (ProblemView, "samples"), (JobView, "result_data")}


@dataclass(frozen=True, slots=True)
class Named:
    """A view of two fields, the first of which is not a column."""

    name: str
    url: str


def test_the_columns_of_a_view_come_in_the_order_of_its_fields():
    statement = select_view(Named, Sitemap, name=Domain.domain)
    assert [column.key for column in statement.selected_columns] == ["name", "url"]
    assert str(statement).startswith("SELECT domains.domain AS name, sitemaps.url")


def test_a_field_without_a_column_is_noticed_when_the_statement_is_made():
    with pytest.raises(AttributeError, match="name"):
        select_view(Named, Sitemap)


@pytest.mark.parametrize(
    ("view", "model"),
    [
        (AttemptView, JobAttempt),
        (CandidateView, Candidate),
        (DomainView, Domain),
        (JobView, Job),
        (ProblemView, DomainProblem),
        (ScanView, Scan),
        (SitemapView, Sitemap),
        (WorkerView, Worker),
    ],
)
def test_a_field_has_the_type_of_its_column(view: type[Any], model: type[Base]):
    columns = get_type_hints(model)
    for name, type_ in get_type_hints(view).items():
        if name in columns and (view, name) not in MADE_BY_THE_VIEW:
            (stored,) = get_args(columns[name])
            assert type_ == stored, name
