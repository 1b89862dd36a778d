"""Small untruths about the code, each with the tests that must notice it.

A case that no longer fits the code is to be written anew: what it says must still be noticed.
"""

from __future__ import annotations

from tests.mutations.mutation import EVERY, Edit, added_import, mutation

SETTINGS_TESTS = "tests/scheduler/database/test_sitemap_scheduler_settings.py"
SESSIONS = "tests/processor/database/test_steps_scan_sessions.py"
RECOVERY = "tests/processor/database/test_processing_recovery.py"
JOB_TYPES = "tests/queue/database/test_job_service_types.py"
OPERATOR_ACTIONS = "tests/queue/database/test_operator_actions.py"
SITE_OF_A_JOB = "tests/processor/database/test_processing_site_of_a_job.py"
LOG_LINES = "tests/processor/database/test_processing_log.py"
OWN_SESSION = "tests/processor/database/test_processing_own_session.py"
APPLICATION = "tests/test_main_application.py"
SEQUENCES = "tests/acceptance/test_submit_sequences.py"
STATUS_LIFE = "tests/acceptance/test_status_life.py"
STATEMENTS = "tests/architecture/test_statements.py"
TRANSACTIONS = "tests/architecture/test_transactions.py"
DEPLOYMENT = "tests/architecture/test_deployment.py"
SCHEDULER = "tests/scheduler/database/test_sitemap_scheduler.py"
TICKS = "tests/scheduler/database/test_sitemap_scheduler_ticks.py"
COMPLETION = "tests/queue/database/test_completion.py"
PROGRESS = "tests/processor/database/test_processing_progress.py"
CONNECTION_POOL = "tests/storage/database/test_engine_connection_pool.py"
MIGRATIONS = "tests/storage/database/test_schema_migrations.py"
SEED_SCRIPTS = "tests/acceptance/test_scripts.py"

NEWEST_SESSION = """\
_newest: list[AsyncSession] = []


@asynccontextmanager
async def newest_session() -> AsyncIterator[AsyncSession]:
    yield _newest[0]


"""


MUTATIONS = (
    mutation(
        "the clock has an interval of its own",
        f"{SETTINGS_TESTS}::test_the_interval_of_the_environment_reaches_the_clock",
        Edit(
            "siteatlas.scheduler.sitemap_scheduler.SitemapScheduler.start",
            "minutes = self._settings.scheduler_interval_minutes",
            "minutes = 999",
        ),
    ),
    mutation(
        "the interval is read from another variable",
        f"{SETTINGS_TESTS}::test_the_interval_of_the_environment_reaches_the_clock",
        Edit(
            "siteatlas.settings.Settings",
            'env="SITEMAP_SCHEDULER_INTERVAL_MINUTES"',
            'env="SITEATLAS_INTERVAL_MINUTES"',
        ),
    ),
    mutation(
        "the default interval is 15 minutes",
        f"{SETTINGS_TESTS}::test_the_clock_ticks_every_five_minutes_by_default",
        Edit(
            "siteatlas.settings.Settings",
            '5,\n        env="SITEMAP_SCHEDULER_INTERVAL_MINUTES"',
            '15,\n        env="SITEMAP_SCHEDULER_INTERVAL_MINUTES"',
        ),
    ),
    mutation(
        "the number of instances does not reach the clock",
        f"{SETTINGS_TESTS}::test_the_number_of_instances_of_the_environment_reaches_the_clock",
        Edit(
            "siteatlas.scheduler.sitemap_scheduler.SitemapScheduler.start",
            '"max_instances": self._settings.scheduler_max_instances',
            '"max_instances": 1',
        ),
    ),
    mutation(
        "the batch size does not reach the query for due sites",
        f"{SETTINGS_TESTS}::test_due_sites_are_queued_in_batches_of_the_size_in_the_environment",
        Edit(
            "siteatlas.scheduler.sitemap_scheduler._enqueue_batch",
            "session, settings.scheduler_batch_size, settings.scan_interval_hours",
            "session, 777, settings.scan_interval_hours",
        ),
    ),
    mutation(
        "a poll claims as many jobs as there are free slots",
        f"{SETTINGS_TESTS}::test_a_poll_claims_no_more_jobs_than_the_batch_size_of_the_environment",
        Edit(
            "siteatlas.scheduler.consumer.Consumer",
            "self._settings.claim_limit or self._slots.free",
            "self._slots.free",
        ),
    ),
    mutation(
        "the default limit of process_pending_sitemaps is 500",
        f"{SETTINGS_TESTS}::test_without_a_limit_ten_jobs_are_taken",
        Edit(
            "siteatlas.scheduler.sitemap_scheduler.process_pending_sitemaps",
            "limit: int = 10, *",
            "limit: int = 500, *",
        ),
    ),
    mutation(
        "get_pending_jobs lists jobs of every type",
        f"{OPERATOR_ACTIONS}::test_pending_jobs_are_listed_by_type_and_up_to_the_limit",
        Edit(
            "siteatlas.queue.job_service.JobService.get_pending_jobs",
            ", Job.job_type == job_type)",
            ")",
        ),
    ),
    mutation(
        "jobs of every type are claimed",
        f"{JOB_TYPES}::test_a_job_of_another_type_is_not_claimed",
        Edit(
            "siteatlas.queue.fence.is_pending",
            "job.job_type == queue_literal(SITEMAP_JOB)",
            "job.job_type == job.job_type",
        ),
    ),
    mutation(
        "jobs of every type are rescued",
        f"{JOB_TYPES}::test_a_job_of_another_type_is_neither_rescued_nor_disowned",
        Edit(
            "siteatlas.queue.rescues",
            "Job.job_type == SITEMAP_JOB",
            "Job.job_type == Job.job_type",
            times=EVERY,
        ),
    ),
    mutation(
        "a job inserted without its site keeps none",
        f"{SITE_OF_A_JOB}",
        Edit(
            "siteatlas.processor.processing._register",
            "await assign_domain(session, claim, site.id)",
            "await noop()",
        ),
        Edit(
            "siteatlas.processor.processing._find_address",
            "async def _find_address",
            "async def noop() -> None: ...\n\n\nasync def _find_address",
        ),
    ),
    mutation(
        "the end of the application leaves the scheduler running",
        f"{APPLICATION}::test_the_end_of_the_lifespan_stops_the_scheduler",
        Edit(
            "siteatlas.main._run_scheduler_in_lifespan", "        await scheduler.shutdown()\n", ""
        ),
    ),
    mutation(
        "the application does not start the scheduler",
        f"{APPLICATION}::test_the_lifespan_runs_the_scheduler_and_a_submit_reaches_it",
        Edit("siteatlas.main._run_scheduler_in_lifespan", "    await scheduler.start()\n", ""),
    ),
    mutation(
        "a scan reports no progress",
        "tests/processor/database/test_processing_progress.py",
        Edit(
            "siteatlas.processor.recorder.Recorder",
            "START_PROGRESS + READING_PROGRESS * ended / max(1, known)",
            "START_PROGRESS",
        ),
    ),
    mutation(
        "a job that is set back keeps its progress",
        f"{OPERATOR_ACTIONS}",
        Edit("siteatlas.queue.operator_actions.requeued_values", '        "progress": 0.0,\n', ""),
    ),
    mutation(
        "a crash inside a job is not caught",
        f"{RECOVERY}::test_the_error_of_a_crash_says_nothing_of_our_inside",
        Edit(
            "siteatlas.processor.processing.Processor",
            '        except Exception:\n            log.exception("job_crashed")\n'
            "            return await self._record_failure(claim, SiteatlasError(), transient=True)\n",
            "",
        ),
    ),
    mutation(
        "the error of a crash is the text of the exception",
        f"{RECOVERY}::test_the_error_of_a_crash_says_nothing_of_our_inside "
        f"{APPLICATION}::test_a_job_that_crashes_is_answered_without_our_inside",
        Edit(
            "siteatlas.processor.processing.Processor",
            '        except Exception:\n            log.exception("job_crashed")\n'
            "            return await self._record_failure(claim, SiteatlasError(), transient=True)\n",
            '        except Exception as error:\n            log.exception("job_crashed")\n'
            "            return await self._record_failure("
            "claim, SiteatlasError(repr(error)), transient=True)\n",
        ),
    ),
    mutation(
        "a final failure is logged as information",
        f"{LOG_LINES}::test_a_final_failure_is_a_warning_and_one_that_is_retried_is_not",
        Edit(
            "siteatlas.processor.processing.Processor",
            "(log.info if expected else log.warning)(",
            "log.info(",
        ),
    ),
    mutation(
        "an unknown job is passed over in silence",
        f"{OWN_SESSION}::test_an_unknown_job_is_a_warning_and_no_error",
        Edit(
            "siteatlas.processor.processing._claim_waiting",
            '        log.warning("job_not_found", job_id=str(job_id))\n',
            "",
        ),
    ),
    mutation(
        "the status route always says pending",
        f"{STATUS_LIFE}",
        Edit(
            "siteatlas.api.routers.scans.get_scan_status",
            "    return await find_job(session, job_id)",
            '    return dataclasses.replace(await find_job(session, job_id), status="pending")',
        ),
        added_import("siteatlas.api.routers.scans", "import dataclasses"),
    ),
    mutation(
        "the processor uses sessions of requests",
        f"{SESSIONS}::test_each_step_of_a_job_has_a_background_session_of_its_own",
        Edit("siteatlas.processor.processing", "get_job_session()", "get_session()", times=EVERY),
        Edit(
            "siteatlas.processor.processing",
            "get_autocommit_session(for_job=True)",
            "get_autocommit_session()",
            times=EVERY,
        ),
        added_import(
            "siteatlas.processor.processing",
            "from siteatlas.storage.session import get_autocommit_session, get_session",
        ),
    ),
    mutation(
        "the processor opens sessions from a factory of its own",
        f"{TRANSACTIONS}::test_background_work_opens_background_sessions_only",
        Edit(
            "siteatlas.processor.processing.Processor",
            "get_job_session() as session",
            "AsyncSession(bound_database().engine) as session",
            times=EVERY,
        ),
    ),
    mutation(
        "the last rows of a scan are not written with its status",
        f"{SESSIONS}::test_the_status_of_a_success_is_written_with_the_last_rows",
        Edit(
            "siteatlas.processor.publication.FinalTransaction",
            "                await flush_batch(session, self.finished.batch, scan_id=self.end.scan.id)\n",
            "                async with get_job_session() as other, other.begin():\n"
            "                    await flush_batch(\n"
            "                        other, self.finished.batch, scan_id=self.end.scan.id\n"
            "                    )\n",
        ),
    ),
    mutation(
        "a transaction of a job is open beside another one",
        f"{SESSIONS}::test_no_step_of_a_job_is_nested_in_another",
        Edit(
            "siteatlas.processor.publication.FinalTransaction",
            "                summary = await self._summarise(session)\n",
            "                async with get_job_session() as other, other.begin():\n"
            "                    await other.connection()\n"
            "                summary = await self._summarise(session)\n",
        ),
    ),
    mutation(
        "the status after an error is written in the session that failed",
        f"{SESSIONS}::test_the_status_after_an_error_is_written_in_a_session_of_its_own",
        Edit("siteatlas.storage.session._bound", "_bound: list", f"{NEWEST_SESSION}_bound: list"),
        Edit(
            "siteatlas.storage.session.Database.session",
            "                yield session\n",
            "                _newest[:] = [session]\n                yield session\n",
        ),
        added_import(
            "siteatlas.processor.publication",
            "from siteatlas.storage.session import newest_session",
        ),
        Edit(
            "siteatlas.processor.publication",
            "get_job_session() as session",
            "newest_session() as session",
            times=EVERY,
        ),
    ),
    mutation(
        "the session that writes a failure stays open",
        f"{SESSIONS}::test_a_failed_job_leaves_no_connection_in_use",
        Edit(
            "siteatlas.storage.session.Database.session",
            '            async with self._sessions(info={"limits": self._missing(limits)}) as session:\n'
            "                yield session\n",
            '            session = self._sessions(info={"limits": self._missing(limits)})\n            yield session\n',
        ),
        Edit(
            "siteatlas.processor.publication",
            "get_job_session() as session, session.begin()",
            "get_job_session() as session",
            times=EVERY,
        ),
    ),
    mutation(
        "the driver is given SQL as text",
        f"{STATEMENTS}",
        Edit(
            "siteatlas.catalog.url_copy.copy_urls",
            "if not driver.is_in_transaction():",
            'if not await driver.fetchval("SELECT 1"):',
        ),
    ),
    mutation(
        "a second module goes past SQLAlchemy",
        f"{STATEMENTS}",
        Edit(
            "siteatlas.catalog.write_batch.flush_batch",
            "async def flush_batch(",
            "async def raw(connection):\n    return await connection.get_raw_connection()\n\n\n"
            "async def flush_batch(",
        ),
    ),
    mutation(
        "a router leaves the transaction to others",
        f"{TRANSACTIONS}::test_a_route_that_writes_begins_one_transaction",
        Edit(
            "siteatlas.api.routers.jobs.cancel_job",
            "    async with session.begin():\n",
            "    if session:\n",
        ),
    ),
    mutation(
        "a route opens its session past the dependencies",
        f"{TRANSACTIONS}::test_routes_are_given_their_session_unless_they_retry",
        Edit(
            "siteatlas.api.routers.domain_contents.get_sitemap",
            "    return await find_sitemap(session, sitemap_id)\n",
            "    async with get_session() as session:\n"
            "        return await find_sitemap(session, sitemap_id)\n",
        ),
    ),
    mutation(
        "a service opens a session of its own",
        f"{TRANSACTIONS}::test_statement_modules_are_given_their_session",
        Edit(
            "siteatlas.queue.job_service.JobService.get_by_id",
            "        statement = select(Job).where(_names(job_id))\n",
            "        async with get_session() as session:\n            pass\n"
            "        statement = select(Job).where(_names(job_id))\n",
        ),
    ),
    mutation(
        "the scheduler reads sites itself",
        "tests/architecture/test_scheduler_imports.py",
        added_import(
            "siteatlas.scheduler.consumer",
            "from siteatlas.scanner.analyzer import SitemapAnalyzer",
        ),
    ),
    mutation(
        "check_job shows no result",
        f"{SEQUENCES}::test_a_submit_by_http_is_listed_processed_and_shown_with_its_values",
        Edit(
            "siteatlas.cli.scripts._write_job_fields",
            'write_line(f"Result Data: {job.result_data}")\n    _write_error_line(job)',
            'write_line("Result Data: {}")\n    _write_error_line(job)',
        ),
    ),
    mutation(
        "check_domain_sitemaps shows nobody as the owner",
        f"{SEQUENCES}::test_a_submit_by_http_is_listed_processed_and_shown_with_its_values",
        Edit(
            "siteatlas.cli.scripts._write_sitemaps",
            "Created by: {sitemap.created_by}",
            "Created by: nobody",
        ),
    ),
    mutation(
        "check_job ignores the number that it is given",
        f"{SEQUENCES}::test_a_failed_job_is_shown_with_its_error",
        Edit(
            "siteatlas.cli.scripts._named_or_newest_job",
            "return await find_job(session, ident)",
            "raise JobNotFound",
        ),
    ),
    mutation(
        "the monitor looks once and repeats what it saw",
        f"{SEQUENCES}::test_the_monitor_sees_a_submitted_job_become_completed",
        Edit(
            "siteatlas.cli.scripts._write_monitor_update",
            "    write_state(await scheduler_state())\n",
            "    if not SEEN:\n        SEEN.append(await scheduler_state())\n"
            "    write_state(SEEN[0])\n",
        ),
        Edit(
            "siteatlas.cli.scripts._write_monitor_update",
            "async def _write_monitor_update(",
            "SEEN = []\n\n\nasync def _write_monitor_update(",
        ),
    ),
    mutation(
        "a job that runs outside of a worker does not renew its lease",
        f"{OWN_SESSION}::test_the_lease_is_renewed_for_as_long_as_the_scan_takes",
        Edit(
            "siteatlas.processor.processing._keep_lease",
            "await heartbeat(session, [claim], lease_seconds)",
            "pass",
        ),
    ),
    mutation(
        "an unexpected error of one job ends the worker",
        f"{SCHEDULER}::test_a_job_whose_end_the_database_refuses_does_not_end_the_worker",
        Edit(
            "siteatlas.scheduler.consumer.Consumer._run_in_slot",
            'log.exception("job_end_not_recorded", job_id=str(job.claim.job_id))\n',
            'log.exception("job_end_not_recorded", job_id=str(job.claim.job_id))\n'
            "            raise\n",
        ),
    ),
    mutation(
        "pruning stops at its first unexpected error",
        f"{SCHEDULER}::test_an_unexpected_error_of_a_step_of_pruning_does_not_stop_the_others",
        Edit(
            "siteatlas.scheduler.sitemap_scheduler.prune",
            'log.exception("prune_failed", what=name)\n',
            'log.exception("prune_failed", what=name)\n            return\n',
        ),
    ),
    mutation(
        "a due site that cannot be queued is passed over in silence",
        f"{TICKS}::test_a_due_site_that_cannot_be_queued_is_a_warning_with_its_reason",
        Edit(
            "siteatlas.scheduler.sitemap_scheduler._enqueue_due_site",
            'log.warning(\n            "due_domain_failed",',
            'dict(\n            event="due_domain_failed",',
        ),
    ),
    mutation(
        "a completed job keeps the error of an earlier attempt",
        f"{COMPLETION}::test_a_job_that_is_completed_shows_no_error_of_an_earlier_attempt",
        Edit(
            "siteatlas.queue.completion._completion",
            "            error=None,\n            error_code=None,\n",
            "",
        ),
    ),
    mutation(
        "a job that is set to failed by hand has no end time",
        f"{OPERATOR_ACTIONS}::test_a_job_that_is_ended_by_hand_has_an_end_time",
        Edit(
            "siteatlas.queue.job_service._job_values_for_status",
            'values["error_code"] = None\n    return values | {"finished_at": func.now()}\n',
            'values |= {"error_code": None, "finished_at": func.now()}\n    return values\n',
        ),
    ),
    mutation(
        "progress begins at a half",
        f"{PROGRESS}::test_a_job_begins_at_zero_and_has_hardly_any_progress_before_it_reads_a_document",
        Edit("siteatlas.processor.recorder.START_PROGRESS", "0.05", "0.5"),
    ),
    mutation(
        "the progress of a continued scan begins at a half",
        f"{PROGRESS}::test_a_job_begins_at_zero_and_has_hardly_any_progress_before_it_reads_a_document",
        Edit(
            "siteatlas.processor.processing.Processor._continue",
            "progress=START_PROGRESS",
            "progress=0.5",
        ),
    ),
    mutation(
        "a default of a model differs from that of the migrations",
        f"{MIGRATIONS}::test_the_migrations_make_exactly_the_tables_of_the_models",
        Edit(
            "siteatlas.storage.models.jobs.Job.progress",
            'server_default=text("0")',
            'server_default=text("0.5")',
        ),
    ),
    mutation(
        "the connections of the queue stay open when the database is closed",
        f"{CONNECTION_POOL}::test_a_database_that_is_closed_leaves_no_connection_open",
        Edit("siteatlas.storage.session.Database.close", "await self.queue.close()", "pass"),
    ),
    mutation(
        "a service opens a session of the queue",
        f"{TRANSACTIONS}::test_statement_modules_are_given_their_session",
        Edit(
            "siteatlas.queue.job_service.JobService.get_by_id",
            "        statement = select(Job).where(_names(job_id))\n",
            "        async with get_background_session(for_queue=True) as session:\n            pass\n"
            "        statement = select(Job).where(_names(job_id))\n",
        ),
    ),
    mutation(
        "docker-compose.yml sets no variable of the scheduler",
        f"{DEPLOYMENT}::test_the_worker_is_given_every_variable_of_the_scheduler",
        Edit("docker-compose.yml", "  SITEMAP_SCHEDULER_", "  # SITEMAP_SCHEDULER_", times=EVERY),
    ),
    mutation(
        "the scripts ignore the batch size",
        f"{SETTINGS_TESTS}::test_the_scripts_run_as_many_jobs_as_the_batch_size_of_the_environment",
        Edit("siteatlas.cli.scripts.run_scheduler", "settings.scheduler_batch_size,", "20,"),
    ),
    mutation(
        "add_test_sitemap ignores --reset",
        f"{SEED_SCRIPTS}::test_a_site_is_added_anew_after_its_waiting_job_was_cancelled",
        Edit("siteatlas.cli.scripts.queue_site", "if reset:", "if False:"),
    ),
)
