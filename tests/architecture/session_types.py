"""What mypy must refuse; no test runs it.

Each refusal is expected by a `type: ignore` with its code. mypy reports an `ignore` that is not
needed, so that `make check` fails as soon as one of these lines is accepted.
"""

from __future__ import annotations

from sqlalchemy import insert, update

from siteatlas.api.context import ApiContext
from siteatlas.catalog.domains import register_domain
from siteatlas.net.address import WebAddress
from siteatlas.queue.operator_actions import cancel
from siteatlas.queue.submission import SiteSubmission, submit_site
from siteatlas.queue.views import find_job
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from siteatlas.storage.session import AsyncSession, execute_autocommit, get_autocommit_session


async def read_without_a_transaction(context: ApiContext, transaction: AsyncSession) -> None:
    """Reading is accepted in both kinds of session."""
    async with get_autocommit_session() as session:
        await find_job(session, "1")
        await context.has_live_worker(session)
    await find_job(transaction, "1")
    await context.has_live_worker(transaction)


async def begin_without_a_transaction(domain: Domain) -> None:
    """Nothing suggests a transaction where there is none."""
    async with get_autocommit_session() as session:
        session.begin()  # type: ignore[attr-defined]
        session.add(domain)  # type: ignore[attr-defined]
        await session.flush()  # type: ignore[attr-defined]
        await session.commit()  # type: ignore[attr-defined]


async def write_by_statement() -> None:
    """A statement that writes needs a transaction."""
    async with get_autocommit_session() as session:
        await session.execute(insert(Domain))  # type: ignore[arg-type]
        await session.execute(update(Job))  # type: ignore[arg-type]
        await session.scalar(insert(Job).returning(Job.id))  # type: ignore[arg-type]


async def write_a_second_time(submission: SiteSubmission, address: WebAddress) -> None:
    """After the one write that commits by itself there is no session for another one."""
    await execute_autocommit(submission.statement, submission.values)
    async with get_autocommit_session() as session:
        await submit_site(session, address, created_by=LOCAL_USER_ID)  # type: ignore[arg-type]
        await register_domain(session, address, created_by=LOCAL_USER_ID)  # type: ignore[arg-type]
        await cancel(session, 1)  # type: ignore[arg-type]


async def write_twice_in_one_call(submission: SiteSubmission) -> None:
    """The one write is a single statement."""
    await execute_autocommit(
        submission.statement,
        submission.values,
        insert(Domain),  # type: ignore[call-arg]
    )
    await execute_autocommit(insert(Domain), {})  # type: ignore[arg-type]
