"""A site that changes between scans, and the log of what the rules demand of the feed.

Each step changes the site and gives, in sentences, the events that the next scan must publish;
nothing here is computed by the code under test. `minutes` pass before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fixtures.changing_site import ChangingSite, Fault

Log = list[str]
Change = Callable[[ChangingSite], Log]

LATER = 61
HALF_AN_HOUR = 30
A = tuple(f"/a{number:02d}" for number in range(30))
B = tuple(f"/b{number:02d}" for number in range(20))
C = tuple(f"/c{number:02d}" for number in range(10))


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the site, and the log of the scan that follows."""

    change: Change
    minutes: int
    fails: bool

    @property
    def name(self) -> str:
        """What happens, in words."""
        return self.change.__name__


STEPS: list[Step] = []


def step(*, minutes: int = 0, fails: bool = False) -> Callable[[Change], Change]:
    """Make a function the next step of the script."""

    def added(change: Change) -> Change:
        STEPS.append(Step(change, minutes, fails))
        return change

    return added


def every(kind: str, pages: tuple[str, ...] | list[str], document: str, end: str = "") -> Log:
    """One sentence for each page."""
    return [f"{kind} {page} {document}{end}" for page in pages]


@step()
def the_site_is_new(site: ChangingSite) -> Log:
    site.add("/index.xml", children=["/a.xml", "/b.xml", "/c.xml"])
    site.add("/a.xml", A)
    site.add("/b.xml", B)
    site.add("/c.xml", C)
    return ["baseline /index.xml", "baseline /a.xml", "baseline /b.xml", "baseline /c.xml"]


@step()
def nothing_happens(site: ChangingSite) -> Log:
    return []


@step()
def pages_come_go_and_get_another_date(site: ChangingSite) -> Log:
    site["/a.xml"].put("/a30", "/a31")
    site["/b.xml"].drop("/b00")
    site["/c.xml"].put("/c00", date="2026-11-05")
    return [
        *every("added", ["/a30", "/a31"], "/a.xml"),
        "removed /b00 /b.xml (complete)",
        "changed /c00 /c.xml (lastmod)",
    ]


@step()
def a_page_moves_and_another_is_listed_twice(site: ChangingSite) -> Log:
    site["/a.xml"].drop("/a00")
    site["/b.xml"].put("/a00")
    site["/c.xml"].put("/a01")
    return ["moved /a00 /b.xml from /a.xml", "duplicate_added /a01 /c.xml"]


@step()
def one_document_is_cut_while_another_loses_a_page(site: ChangingSite) -> Log:
    site["/a.xml"].put_first("/a32")
    site["/a.xml"].fault = Fault.CUT
    site["/a.xml"].cut_after = 4
    site["/b.xml"].drop("/b01")
    return ["added /a32 /a.xml", "removals_held 1"]


@step()
def the_document_fails_and_another_page_leaves(site: ChangingSite) -> Log:
    site["/a.xml"].fault = Fault.SERVER_ERROR
    site["/b.xml"].drop("/b02")
    return []


@step()
def all_can_be_read_again_and_a_page_is_listed_once_less(site: ChangingSite) -> Log:
    site["/a.xml"].fault = None
    site["/c.xml"].drop("/a01")
    return [
        *every("removed", ["/b01", "/b02"], "/b.xml", " (complete)"),
        "duplicate_removed /a01 /c.xml (complete)",
    ]


@step()
def a_web_page_is_served_in_place_of_a_document(site: ChangingSite) -> Log:
    site["/c.xml"].fault = Fault.SOFT_404
    site["/b.xml"].put("/b20")
    return ["added /b20 /b.xml"]


@step()
def a_document_is_suddenly_empty(site: ChangingSite) -> Log:
    site["/c.xml"].fault = None
    site["/c.xml"].entries = {}
    return ["removals_held 10"]


@step(minutes=HALF_AN_HOUR)
def it_is_still_empty_but_not_for_long_enough(site: ChangingSite) -> Log:
    return []


@step(minutes=LATER)
def it_is_empty_for_good(site: ChangingSite) -> Log:
    return every("removed", C, "/c.xml", " (confirmed)")


@step()
def its_pages_are_back(site: ChangingSite) -> Log:
    site["/c.xml"].put(*C)
    return every("back", C, "/c.xml")


@step()
def a_page_moves_into_a_document_that_cannot_be_read(site: ChangingSite) -> Log:
    site["/c.xml"].drop("/c01")
    site["/b.xml"].put("/c01")
    site["/b.xml"].fault = Fault.SERVER_ERROR
    return ["removals_held 1"]


@step(minutes=LATER)
def that_document_still_cannot_be_read(site: ChangingSite) -> Log:
    return []


@step()
def now_it_can(site: ChangingSite) -> Log:
    site["/b.xml"].fault = None
    return ["moved /c01 /b.xml from /c.xml"]


@step()
def a_new_version_of_a_document_is_cut(site: ChangingSite) -> Log:
    site["/a.xml"].put_first("/a90", "/a91")
    site["/a.xml"].fault = Fault.CUT
    site["/a.xml"].cut_after = 2
    return every("added", ["/a90", "/a91"], "/a.xml")


@step()
def the_old_version_is_back_with_its_old_etag(site: ChangingSite) -> Log:
    site["/a.xml"].fault = None
    site["/a.xml"].drop("/a90", "/a91")
    return every("removed", ["/a90", "/a91"], "/a.xml", " (complete)")


@step()
def most_pages_leave_at_once(site: ChangingSite) -> Log:
    site["/a.xml"].entries = {"/a02": "2026-11-01"}
    site["/b.xml"].entries = {"/a00": "2026-11-01"}
    return [f"removals_held {31 + 19}"]


@step(minutes=HALF_AN_HOUR)
def they_are_all_there_again(site: ChangingSite) -> Log:
    site["/a.xml"].put(*(*A[1:], "/a30", "/a31", "/a32"))
    site["/b.xml"].put(*(*B[3:], "/b20", "/c01"))
    return []


@step()
def no_document_is_found(site: ChangingSite) -> Log:
    site.set_fault(Fault.NOT_FOUND)
    return [f"removals_held {len(site.listed())}"]


@step(minutes=HALF_AN_HOUR)
def all_documents_are_found_again(site: ChangingSite) -> Log:
    site.set_fault(None)
    return []


@step()
def no_document_is_found_a_second_time(site: ChangingSite) -> Log:
    site.set_fault(Fault.NOT_FOUND)
    return [f"removals_held {len(site.listed())}"]


@step(minutes=LATER)
def they_are_gone_for_good(site: ChangingSite) -> Log:
    gone = [f"removed {page} {document} (confirmed)" for document, page in site.listed()]
    return [*gone, *(f"sitemap_gone {path}" for path in site.documents)]


@step()
def the_whole_site_is_back(site: ChangingSite) -> Log:
    site.set_fault(None)
    back = [f"back {page} {document}" for document, page in site.listed()]
    return [*back, *(f"sitemap_added {path}" for path in site.documents)]


@step(fails=True)
def the_site_cannot_be_reached(site: ChangingSite) -> Log:
    site.robots_status = 503
    return ["scan_failed"]


@step()
def a_document_redirects_and_another_is_listed_no_more(site: ChangingSite) -> Log:
    site.robots_status = 200
    site.documents["/b2.xml"] = site["/b.xml"]
    site.add("/b.xml", moved_to="/b2.xml")
    site["/index.xml"].children = ["/a.xml", "/b.xml"]
    del site.documents["/c.xml"]
    return [f"removals_held {len(C) - 1}"]


@step(minutes=LATER)
def that_document_is_gone(site: ChangingSite) -> Log:
    pages = [page for page in C if page != "/c01"]
    return [*every("removed", pages, "/c.xml", " (confirmed)"), "sitemap_gone /c.xml"]


@step()
def the_index_becomes_a_list_of_pages(site: ChangingSite) -> Log:
    site.add("/index.xml", ["/a02", "/new"])
    held = len(site.listed("/a.xml")) + len(site.listed("/b2.xml"))
    return [
        "duplicate_added /a02 /index.xml",
        "added /new /index.xml",
        f"removals_held {held}",
    ]


@step(minutes=LATER)
def its_former_children_are_gone(site: ChangingSite) -> Log:
    former = [(d, p) for d, p in site.listed("/a.xml", "/b2.xml") if p != "/a02"]
    return [
        *(f"removed {page} {document} (confirmed)" for document, page in former),
        "duplicate_removed /a02 /a.xml (confirmed)",
        "sitemap_gone /a.xml",
        "sitemap_gone /b2.xml",
    ]


@step()
def a_feed_appears_and_robots_txt_has_a_note(site: ChangingSite) -> Log:
    site.named.append("/feed.xml")
    site.add("/feed.xml", ["/n1", "/n2", "/n3"], is_feed=True)
    site.robots_note = "# a note"
    return [
        "robots_changed",
        "sitemap_added /feed.xml",
        *every("added", ["/n1", "/n2", "/n3"], "/feed.xml"),
    ]


@step()
def the_feed_goes_on(site: ChangingSite) -> Log:
    site["/feed.xml"].drop("/n1")
    site["/feed.xml"].put("/n4")
    return ["expired /n1 /feed.xml", "added /n4 /feed.xml"]
