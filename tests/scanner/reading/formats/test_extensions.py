"""Images, videos, news, alternates, mobile pages and PageMaps of an entry."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.documents import NAMESPACE, read, urlset

SPACES = {
    "image": "http://www.google.com/schemas/sitemap-image/1.1",
    "video": "http://www.google.com/schemas/sitemap-video/1.1",
    "news": "http://www.google.com/schemas/sitemap-news/0.9",
    "xhtml": "http://www.w3.org/1999/xhtml",
    "mobile": "http://www.google.com/schemas/sitemap-mobile/1.0",
}
DECLARED = f'xmlns="{NAMESPACE}" ' + " ".join(f'xmlns:{p}="{uri}"' for p, uri in SPACES.items())
ONE = "https://a.example/1"


def extras_of(inner: str, *, attributes: str = DECLARED):
    document = read(urlset(f"<url><loc>{ONE}</loc>{inner}</url>", attributes=attributes))
    assert (document.urls, document.error) == ([ONE], None)
    return document.columns.extras[0]


def test_images_with_all_their_fields():
    extras = extras_of(
        "<image:image><image:loc> https://i.example/1.png </image:loc><image:title>T</image:title>"
        "<image:caption>C &amp; c</image:caption><image:license>L</image:license>"
        "<image:geo_location>Limerick</image:geo_location></image:image>"
        "<image:image><image:loc>https://i.example/2.png</image:loc></image:image>"
        "<image:image><image:title>no place</image:title></image:image>"
    )
    assert extras == {
        "images": [
            {
                "loc": "https://i.example/1.png",
                "title": "T",
                "caption": "C & c",
                "license": "L",
                "geo_location": "Limerick",
            },
            {"loc": "https://i.example/2.png"},
        ]
    }


def test_videos_with_attributes_and_repeated_fields():
    extras = extras_of(
        "<video:video><video:thumbnail_loc>https://i.example/t.jpg</video:thumbnail_loc>"
        '<video:title>T</video:title><video:player_loc allow_embed="yes">https://p.example'
        '</video:player_loc><video:restriction relationship="allow">IE GB</video:restriction>'
        "<video:tag>a</video:tag><video:tag>b</video:tag>"
        '<video:uploader info="https://u.example">U</video:uploader></video:video>'
    )
    assert extras == {
        "videos": [
            {
                "thumbnail_loc": "https://i.example/t.jpg",
                "title": "T",
                "player_loc": "https://p.example",
                "player_loc_allow_embed": "yes",
                "restriction": "IE GB",
                "restriction_relationship": "allow",
                "tag": ["a", "b"],
                "uploader": "U",
                "uploader_info": "https://u.example",
            }
        ]
    }


def test_attributes_of_repeated_video_tags_stand_in_lists_as_long_as_their_values():
    extras = extras_of(
        '<video:video><video:price currency="EUR" type="rent">1.99</video:price>'
        '<video:price currency="USD">2.49</video:price><video:price type="own">9</video:price>'
        '<video:content_segment_loc duration="60">https://v.example/1</video:content_segment_loc>'
        '<video:content_segment_loc duration="90">https://v.example/2</video:content_segment_loc>'
        "<video:price_type>as a tag</video:price_type></video:video>"
    )
    assert extras == {
        "videos": [
            {
                "price": ["1.99", "2.49", "9"],
                "price_currency": ["EUR", "USD", None],
                "price_type": "as a tag",
                "content_segment_loc": ["https://v.example/1", "https://v.example/2"],
                "content_segment_loc_duration": ["60", "90"],
            }
        ]
    }


def test_too_many_attributes_of_a_repeated_tag_are_cut():
    names = "".join(f' a{number}="x"' for number in range(9))
    content = (
        f"<url><loc>{ONE}</loc><video:video><video:tag{names}>t</video:tag></video:video></url>"
    )
    document = read(urlset(content, attributes=DECLARED))
    extras = document.columns.extras[0]
    assert extras is not None
    (video,) = extras["videos"]
    assert len(video) == 1 + 8
    assert document.problems == {"extras_cut": 1}


def test_news():
    extras = extras_of(
        "<news:news><news:publication><news:name>N</news:name><news:language>en</news:language>"
        "</news:publication><news:publication_date>2026-11-02</news:publication_date>"
        "<news:title>H</news:title><news:keywords>a, b</news:keywords></news:news>"
    )
    assert extras == {
        "news": {
            "publication": {"name": "N", "language": "en"},
            "publication_date": "2026-11-02",
            "title": "H",
            "keywords": "a, b",
        }
    }


def test_alternates_in_languages_and_for_small_screens():
    extras = extras_of(
        '<xhtml:link rel="alternate" hreflang="de" href="https://a.example/de"/>'
        '<xhtml:link rel="alternate" hreflang="x-default" href="https://a.example/"/>'
        '<xhtml:link rel="alternate" media="only screen" href="https://m.a.example/"/>'
        '<xhtml:link rel="canonical" href="https://a.example/c"/>'
        '<xhtml:link rel="alternate" hreflang="fr"/>'
    )
    assert extras == {
        "alternates": [
            {"href": "https://a.example/de", "hreflang": "de"},
            {"href": "https://a.example/", "hreflang": "x-default"},
            {"href": "https://m.a.example/", "media": "only screen"},
        ]
    }


def test_mobile_and_pagemap():
    extras = extras_of(
        '<mobile:mobile/><PageMap xmlns="http://www.google.com/schemas/sitemap-pagemap/1.0">'
        '<DataObject type="document" id="hibachi"><Attribute name="name">Dragon</Attribute>'
        '<Attribute name="review" value="3.5"/><Attribute name="review" value="4"/></DataObject>'
        '<DataObject type="stats"/></PageMap>'
    )
    assert extras == {
        "mobile": True,
        "pagemap": [
            {
                "type": "document",
                "id": "hibachi",
                "attributes": {"name": ["Dragon"], "review": ["3.5", "4"]},
            },
            {"type": "stats", "attributes": {}},
        ],
    }


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(DECLARED, id="declared"),
        pytest.param("", id="nothing declared"),
        pytest.param(DECLARED.replace("image/1.1", "image/1.0"), id="another version"),
        pytest.param(DECLARED.replace("xmlns:image", "xmlns:pic"), id="another prefix declared"),
    ],
)
def test_namespaces_may_be_wrong_or_missing(attributes):
    inner = "<image:image><image:loc>https://i.example/1.png</image:loc></image:image>"
    assert extras_of(inner, attributes=attributes) == {
        "images": [{"loc": "https://i.example/1.png"}]
    }


def test_upper_case_tags_are_read():
    inner = "<IMAGE:IMAGE><IMAGE:LOC>https://i.example/1.png</IMAGE:LOC></IMAGE:IMAGE>"
    assert extras_of(inner, attributes="") == {"images": [{"loc": "https://i.example/1.png"}]}


def test_an_image_outside_of_its_element_is_not_taken_for_the_page():
    document = read(urlset(f"<url><image:loc>https://i.example/</image:loc><loc>{ONE}</loc></url>"))
    assert document.urls == [ONE]


def test_unknown_and_empty_extensions_leave_nothing():
    assert extras_of("<x:y><z/></x:y><video:video/><news:news/><image:image/>") is None


def test_too_many_and_too_long_values_are_cut_and_counted():
    image = "<image:image><image:loc>https://i.example/</image:loc></image:image>"
    long = f"<video:video><video:description>{'x' * 9000}</video:description></video:video>"
    document = read(urlset(f"<url><loc>{ONE}</loc>{image * 1001}{long}</url>"))
    extras = document.columns.extras[0]
    assert extras is not None
    assert len(extras["images"]) == 1000
    assert len(extras["videos"][0]["description"]) == 4096
    assert document.problems["extras_cut"] == 2


@pytest.mark.parametrize("start", ["<url>", "<url id='1'>"], ids=["fast", "strict"])
@pytest.mark.parametrize("size", [997, 1 << 20])
def test_the_keys_of_extras_are_in_order_however_a_document_is_read(start, size):
    image = "<image:title>T</image:title><image:loc>https://i.example/1</image:loc>"
    news = (
        "<news:news><news:title>T</news:title><news:publication><news:name>N</news:name>"
        "<news:language>en</news:language></news:publication></news:news>"
    )
    player = "<video:player_loc autoplay='1' allow_embed='yes'>p</video:player_loc>"
    parts = [
        news,
        f"<image:image>{image}<image:caption>C</image:caption></image:image>",
        f"<image:image>{image}</image:image>",
        f"<video:video><video:title>T</video:title>{player}</video:video>",
        (
            '<PageMap><DataObject type="t" id="i"><Attribute name="b">1</Attribute>'
            '<Attribute name="a">2</Attribute></DataObject></PageMap>'
        ),
    ]
    for kinds in (3, 5):
        entries = "".join(
            f"{start}<loc>{ONE}/{number}</loc>{parts[number % kinds]}{parts[1]}</url>"
            for number in range(100)
        )
        content = urlset(entries, attributes=DECLARED)
        chunks = [content[at : at + size] for at in range(0, len(content), size)]
        extras = read(chunks, block_bytes=0).columns.extras
        assert len(extras) == 100
        assert json.dumps(extras) == json.dumps(extras, sort_keys=True)
