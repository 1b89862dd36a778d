"""ResourceSync documents: which are indexes, which are windows, and what their entries say."""

from __future__ import annotations

import pytest

from siteatlas.scanner.events import ChildrenFound, DocumentClosed, SitemapType
from siteatlas.scanner.reading.head import read_capability
from tests.fixtures.documents import NAMESPACE, read
from tests.fixtures.scans import record_scan

RS = "http://www.openarchives.org/rs/terms/"
ROOT = f'<urlset xmlns="{NAMESPACE}" xmlns:rs="{RS}">'
PAGE = "<url><loc>https://a.example/1</loc></url>"
DELETED = (
    '<url><loc>https://a.example/gone</loc><rs:md change="deleted" datetime="2026-01-02"/></url>'
)


def document(capability: str, inner: str = PAGE, before: str = "") -> bytes:
    head = f'{ROOT}{before}<rs:md capability="{capability}" at="2026-01-01"/>'
    return f"{head}{inner}</urlset>".encode()


@pytest.mark.parametrize(
    ("capability", "is_window"),
    [
        ("changelist", True),
        ("changedump", True),
        ("changedump-manifest", True),
        ("resourcedump-manifest", True),
        ("resourcelist", False),
        ("resourcedump", False),
        ("somethingelse", False),
    ],
)
def test_a_document_of_changes_is_a_window(capability, is_window):
    found = read(document(capability))
    assert found.reader.is_window is is_window
    assert (found.reader.type, found.urls) == (SitemapType.STANDARD, ["https://a.example/1"])


def test_an_index_of_change_lists_is_an_index_and_no_window():
    root = f'<sitemapindex xmlns="{NAMESPACE}" xmlns:rs="{RS}"><rs:md capability="changelist"/>'
    found = read(f"{root}<sitemap><loc>/c.xml</loc></sitemap></sitemapindex>".encode())
    assert (found.reader.type, found.reader.is_window) == (SitemapType.INDEX, False)
    assert [child.url for child in found.children] == ["/c.xml"]


@pytest.mark.parametrize("end", ["", "<url><loc></broken>"], ids=["parsed", "salvaged"])
@pytest.mark.parametrize("capability", ["capabilitylist", "description", " CapabilityList "])
def test_the_entries_of_a_list_of_documents_are_its_children(capability, end):
    lists = (
        "<url><loc>https://a.example/resources.xml</loc><rs:md capability='resourcelist'/></url>"
    )
    found = read(document(capability, lists + end + lists))
    assert found.reader.type is SitemapType.INDEX
    assert [child.url for child in found.children] == ["https://a.example/resources.xml"] * 2
    assert found.urls == []


@pytest.mark.parametrize("chunk_bytes", [1, 50, 100_000])
@pytest.mark.parametrize(
    "before",
    [
        "",
        "\n  <!-- a comment with <rs:md capability='resourcelist'/> -->\n",
        '<rs:ln rel="up" href="https://a.example/?a>b"/>',
        '<rs:ln rel="up" href="/c.xml"></rs:ln>\n<?target?>',
    ],
    ids=["nothing", "comment", "link", "closed link"],
)
def test_the_capability_may_stand_behind_links_and_comments(before, chunk_bytes):
    content = document("changelist", before=before)
    chunks = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    found = read(chunks, block_bytes=0)
    assert (found.reader.is_window, found.urls) == (True, ["https://a.example/1"])


@pytest.mark.parametrize(
    "content",
    [
        document("changelist").replace(RS.encode(), b"https://b.example/other"),
        f"{ROOT}{PAGE}<rs:md capability='changelist'/></urlset>".encode(),
        f"{ROOT}<rs:md at='2026-01-01'/>{PAGE}</urlset>".encode(),
        f"{ROOT}text{PAGE}</urlset>".encode(),
    ],
    ids=["another namespace", "behind the entries", "no capability", "text"],
)
def test_a_document_without_a_capability_at_its_start_is_an_ordinary_sitemap(content):
    found = read(content)
    assert (found.reader.is_window, found.urls) == (False, ["https://a.example/1"])


def test_a_capability_that_never_comes_ends_with_the_document():
    assert read_capability(ROOT, "<rs:ln rel='up'") is None
    found = read(f"{ROOT}<!-- {'x' * 300_000} --><rs:md capability='changelist'/>".encode())
    assert found.error_code == "truncated"


@pytest.mark.parametrize("end", ["", "<url><loc></broken>"], ids=["parsed", "salvaged"])
def test_a_deleted_resource_is_never_listed(end):
    found = read(document("changelist", end + DELETED + PAGE + DELETED))
    assert found.urls == ["https://a.example/1"]
    assert found.problems["resource_deleted"] == 2
    assert found.reader.tally.skipped >= 2


def test_what_an_entry_says_about_its_resource_is_an_extra():
    md = '<rs:md change="updated" hash="md5:1584" length="8876" type="text/html" x="y"/>'
    inner = f"<url><loc>https://a.example/1</loc>{md}<rs:ln rel='describedby' href='/d'/></url>"
    assert read(document("changelist", inner)).columns.extras == [
        {
            "resourcesync": {
                "change": "updated",
                "hash": "md5:1584",
                "length": "8876",
                "type": "text/html",
            }
        }
    ]


async def test_a_repository_is_found_by_its_well_known_path(site, make_analyzer):
    root = ROOT.encode()

    def listing(capability: str, path: str) -> bytes:
        inner = f"<url><loc>{site.base}{path}</loc></url>"
        return root + f'<rs:md capability="{capability}"/>{inner}</urlset>'.encode()

    site.pages |= {
        "/.well-known/resourcesync": listing("description", "/capabilities.xml"),
        "/capabilities.xml": listing("capabilitylist", "/changes.xml"),
        "/changes.xml": document("changelist", PAGE + DELETED),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == ["https://a.example/1"]
    assert len(record.all(ChildrenFound)) == 2
    closed = {event.url.removeprefix(site.base): event for event in record.all(DocumentClosed)}
    assert {path: (event.type, event.is_window) for path, event in closed.items()} == {
        "/.well-known/resourcesync": (SitemapType.INDEX, False),
        "/capabilities.xml": (SitemapType.INDEX, False),
        "/changes.xml": (SitemapType.STANDARD, True),
    }
