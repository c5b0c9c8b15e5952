"""DOCUMENTPARSER: text and tables from documents that the tests make."""

import io
import json
import re
import zipfile
import zlib
from typing import Any

import pytest

import pipelines
from pipelines import ByteBuffer, Data, DocumentParser, Sequence, StepError

pytest.importorskip("pypdf")
pytest.importorskip("lxml")

HTML = """<html><head><title>not in the text</title><style>p {}</style></head><body>
<!-- nor this --><script>nor("this")</script>
<h1>Invoice</h1>
<table>
 <tr><td>Customer</td></tr>
 <tr><td>Name:</td><td>Ada</td><td>Love&shy;lace</td></tr>
 <tr><td>Remark</td><td>pays <b>soon</b>&nbsp;&amp;
   well</td></tr>
 <tr><td>Goods</td></tr>
 <tr><td>Article</td><td>pen</td></tr>
 <tr><td>Article</td><td>paper</td></tr>
 <tr><td>Name:</td><td>stationery</td></tr>
</table>
<p>Total: 12 EUR</p></body></html>"""


def text_at(x: float, y: float, text: str) -> str:
    """A piece of text on a page, in points from the lower left."""
    return f"BT /F1 12 Tf {x} {y} Td ({text}) Tj ET\n"


def pdf(*pages: str, form: str = "", compressed: bool = False) -> bytes:
    """A PDF file of these pages' drawing instructions; `/X0 Do` draws the form."""
    objects: list[bytes] = [b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]

    def add(content: bytes) -> int:
        objects.append(content)
        return len(objects)

    def stream(entries: bytes, content: bytes) -> int:
        return add(b"<< %s /Length %d >>\nstream\n%s\nendstream" % (entries, len(content), content))

    drawn = stream(
        b"/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Resources << /Font << /F1 1 0 R >> >>", form.encode()
    )
    resources = b"<< /Font << /F1 1 0 R >> %s >>" % (b"/XObject << /X0 %d 0 R >>" % drawn if form else b"")
    tree = len(objects) + 2 * len(pages) + 1
    kids = []
    for page in pages:
        content = zlib.compress(page.encode()) if compressed else page.encode()
        contents = stream(b"/Filter /FlateDecode" if compressed else b"", content)
        kids.append(
            add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 600 800] /Resources %s /Contents %d 0 R >>"
                % (tree, resources, contents)
            )
        )
    add(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids)))
    catalog = add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    written, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer << /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, catalog, len(written))
    return written + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + end


INVOICE = pdf(
    text_at(50, 700, "Customer")
    + text_at(50, 680, "Name")
    + text_at(250, 680, "Ada Lovelace")
    + text_at(50, 660, "City")
    + text_at(250, 660, "London and")
    + text_at(250, 645, "Paris"),
    text_at(50, 700, "Goods") + text_at(50, 680, "Name") + text_at(250, 680, "pens & <paper>"),
)


def parsed(document: Any, **fields: Any) -> str:
    step = DocumentParser(input_names=["in"], output_names=["out"], **fields)
    with Sequence([step]).open() as executor:
        found = executor.run(Data({"in": document, "other": 1}))
    assert isinstance(found, Data)
    assert list(found) == ["out"]
    return found.get_string("out")


def tables(document: Any, **fields: Any) -> Any:
    return json.loads(parsed(document, table_row_extractor_types=["any"], **fields))


def failure(document: Any, **fields: Any) -> str:
    with pytest.raises(StepError) as caught:
        parsed(document, **fields)
    return str(caught.value.__cause__)


def unopened(**fields: Any) -> str:
    with pytest.raises(StepError) as caught:
        Sequence([DocumentParser(**fields)]).open()
    return str(caught.value.__cause__)


def test_the_text_of_a_pdf_is_its_lines_page_by_page() -> None:
    assert parsed(INVOICE).splitlines() == [
        "Customer", "Name Ada Lovelace", "City London and", "Paris", "Goods", "Name pens & <paper>",
    ]  # fmt: skip


def test_a_pdf_as_html_has_a_division_for_each_piece_of_text() -> None:
    html = parsed(INVOICE, parser_types=["pdfbox"])
    assert (
        '<div class="page" id="page_0"><div class="p" id="p0">Customer</div><div class="p" id="p1">Name</div>' in html
    )
    assert '<div class="p" id="p2">Ada Lovelace</div>' in html
    assert '<div class="page" id="page_1"><div class="p" id="p6">Goods</div>' in html
    assert '<div class="p" id="p8">pens &amp; &lt;paper&gt;</div>' in html


@pytest.mark.parametrize("parser", ["pdfbox", "tika"])
def test_fields_of_tables_in_a_pdf_are_the_texts_after_their_names(parser: str) -> None:
    found = tables(
        INVOICE,
        parser_types=[parser],
        selectors=["div.p"],
        field_names=[["Name", "City"]],
        table_keys=["Customer", "Goods"],
    )
    assert found == {
        "Customer": {"Name": ["Ada Lovelace"], "City": ["London and Paris"]},
        "Goods": {"Name": ["pens & <paper>"]},
    }


def test_text_drawn_by_a_form_of_a_pdf_is_read_and_table_cells_stay_apart() -> None:
    page = text_at(50, 700, "Name") + text_at(250, 700, "Ada") + "/X0 Do\n"
    found = tables(
        pdf(page, form=text_at(50, 600, "Stamp: paid")),
        selectors=[".p"],
        field_names=[["Name"]],
        partial_field_names=[["Stamp:"]],
    )
    assert found == {"": {"Name": ["Ada Stamp: paid"]}}
    assert "Stamp: paid" in parsed(pdf(page, form=text_at(50, 600, "Stamp: paid")))


def test_a_compressed_pdf_is_read() -> None:
    assert parsed(pdf(text_at(50, 700, "small"), compressed=True)) == "small"


@pytest.mark.parametrize("document", [HTML.encode(), HTML, ByteBuffer(HTML.encode())], ids=["bytes", "str", "buffer"])
def test_the_text_of_html_is_its_body_with_a_line_a_block(document: Any) -> None:
    assert parsed(document).splitlines() == [
        "Invoice",
        "Customer",
        "Name:\tAda\tLove\N{SOFT HYPHEN}lace",
        "Remark\tpays soon & well",
        "Goods",
        "Article\tpen",
        "Article\tpaper",
        "Name:\tstationery",
        "Total: 12 EUR",
    ]


def test_fields_of_tables_in_html_by_table_partial_and_with_their_tags() -> None:
    found = tables(
        HTML,
        selectors=["td, p"],
        field_names=[["Name:"]],
        table_specific_field_names={"Customer": ["Remark"], "Goods": ["Article"]},
        table_keys=["Customer", "Goods"],
        text_extraction_types={"Remark": "HTML", "Name:": "TEXT"},
    )
    assert found == {
        "Customer": {"Name:": ["Ada Love-lace"], "Remark": ["pays <b>soon</b> &amp; well"]},
        "Goods": {"Article": ["pen", "paper"], "Name:": ["stationery Total: 12 EUR"]},
    }


def test_a_field_of_one_table_is_none_in_another() -> None:
    found = tables(
        HTML,
        selectors=["td"],
        field_names=[["Name:"]],
        table_specific_field_names={"Goods": ["Remark"]},
        table_keys=["Customer", "Goods"],
    )
    assert found["Customer"] == {"Name:": ["Ada Love-lace Remark pays soon & well"]}


def test_a_partial_name_gives_the_rest_of_its_text_outside_of_fields_only() -> None:
    page = "<p>Total: 12</p><p>Name</p><p>Total: 13</p><p>Order</p><p>No. Total: 14 EUR</p>"
    found = tables(
        page, selectors=["p"], field_names=[["Name"]], table_keys=["Order"], partial_field_names=[["Total:"]]
    )
    assert found == {"": {"Total:": ["12"], "Name": ["Total: 13"]}, "Order": {"Total:": ["No. 14 EUR"]}}


def test_rows_are_in_a_body_and_cells_end_as_in_browsers() -> None:
    page = "<table><tr><td>Name<td>Ada<tr><td>City<td>London</table>"
    found = tables(page, selectors=["table > tbody > tr > td"], field_names=[["Name", "City"]])
    assert found == {"": {"Name": ["Ada"], "City": ["London"]}}


def test_elements_come_in_the_order_of_the_document_whatever_that_of_the_selectors() -> None:
    page = "<h2>Name</h2><p>Ada</p><h2>City</h2><p>London</p>"
    assert tables(page, selectors=["p, h2"], field_names=[["Name", "City"]]) == {
        "": {"Name": ["Ada"], "City": ["London"]}
    }


def test_a_selector_may_ask_for_text_that_is_contained() -> None:
    page = "<div><b>x</b>Order</div><p>Name</p><p>Ada</p><div>other</div>"
    found = tables(page, selectors=['div:contains("Order"), p'], field_names=[["Name"]], table_keys=["xOrder"])
    assert found == {"xOrder": {"Name": ["Ada"]}}


def test_blanks_that_do_not_break_are_blanks_in_names_and_values() -> None:
    page = "<p>First&nbsp;name</p><p>Ada\N{NO-BREAK SPACE}NBSPK.</p>"
    assert tables(page, selectors=["p"], field_names=[["First name"]]) == {"": {"First name": ["Ada K."]}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"one\ntwo", "one\ntwo"),
        ("gr\u00fc\u00dfe".encode(), "gr\u00fc\u00dfe"),
        ("gr\u00fc\u00dfe".encode("cp1252"), "gr\u00fc\u00dfe"),
        ("gr\u00fc\u00dfe".encode("utf-16"), "gr\u00fc\u00dfe"),
        (b'<html><meta charset="iso-8859-5"><p>' + "мир".encode("iso-8859-5"), "мир"),
        ('<html><meta charset="utf-16"><p>gr\u00fcn'.encode(), "gr\u00fcn"),
        (b'<html><meta charset="punycode"><p>gr-n', "gr-n"),
        ('<html><meta charset="iso-8859-5"><p>gr\u00fcn', "gr\u00fcn"),
        (b"<?xml version='1.0'?><a><b>one</b><c>two<![CDATA[ < 3]]></c></a>", "one\ntwo < 3"),
        (b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY co 'Co'>]><a>Ltd &co; KG</a>", "Ltd Co KG"),
        (b"<?xml version='1.0'?><html><body><p>one<p>two", "one\ntwo"),
        ("<?xml version='1.0' encoding='iso-8859-5'?><a>gr\u00fcn</a>", "gr\u00fcn"),
        (b'{"json": [1]}', '{"json": [1]}'),
    ],
)  # fmt: skip
def test_text_is_read_in_its_encoding(document: Any, text: str) -> None:
    assert parsed(document) == text


def archive(name: str, content: bytes = b"") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (archive("word/document.xml"), "Word document (docx)"),
        (archive("xl/workbook.xml"), "Excel workbook (xlsx)"),
        (archive("mimetype", b"application/epub+zip"), "EPUB"),
        (archive("mimetype", b"application/vnd.oasis.opendocument.text"), "OpenDocument"),
        (archive("a.txt"), "zip archive"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "old Office document"),
        (b"{\\rtf1 text}", "RTF"),
        (b"\x89PNG\r\n\x1a\n" + bytes(8), "PNG image"),
        (b"\x01\x00\x02text", "not known"),
    ],
)
def test_a_format_that_is_not_read_is_named(document: bytes, name: str) -> None:
    message = failure(document)
    assert name in message
    assert "PDF, HTML, XML and plain text" in message


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"%PDF-1.4\nnonsense", "PDF cannot be read"),
        (INVOICE[:300], "PDF cannot be read"),
        (b"<?xml version='1.0'?><a><b></a>", "not valid XML"),
        (b"<!doctype html>", "not valid HTML"),
        (7, "must be BYTES or STRING, not INT64"),
    ],
)
def test_a_damaged_document_fails_its_record(document: Any, said: str) -> None:
    message = failure(document)
    assert '"in"' in message
    assert said in message


def test_an_encrypted_pdf_is_told_unless_it_opens_without_a_password() -> None:
    import pypdf

    for password, readable in (("", True), ("secret", False)):
        writer = pypdf.PdfWriter(clone_from=io.BytesIO(INVOICE))
        writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
        made = io.BytesIO()
        writer.write(made)
        if readable:
            assert "Ada Lovelace" in parsed(made.getvalue())
        else:
            assert "encrypted with a password" in failure(made.getvalue())


@pytest.mark.slow
def test_hostile_documents_are_refused_before_they_cost_memory() -> None:
    bomb = pdf(" " * 5_000_000, compressed=True)
    assert len(bomb) < 10_000
    assert "unpack to more than 1,000,000 bytes (maxBytes)" in failure(bomb, max_bytes=1_000_000)
    huge = pdf(" " * 100_000_000, compressed=True)
    assert "PDF cannot be read: LimitReachedError" in failure(huge)
    assert "limit is 10 (maxBytes)" in failure(b"x" * 11, max_bytes=10)
    assert "3 pages; the limit is 2 (maxPages)" in failure(pdf("", "", ""), max_pages=2)
    assert "1,000,000 tags" in failure("<b>" * 1_000_001)


def test_entities_neither_multiply_nor_read_files() -> None:
    names = [f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10)]
    laughs = f"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY a0 'lol'>{''.join(names)}]><a>&a9;</a>"
    assert "not valid XML" in failure(laughs)
    outside = "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><a>&x;</a>"
    assert "not valid XML" in failure(outside)


@pytest.mark.parametrize("parser", ["pdfbox", "tika"])
@pytest.mark.parametrize("use", ["/X0 Do ", "/X#30 Do ", "/X0 %\nDo "])
def test_forms_that_draw_forms_that_draw_forms_are_bounded(parser: str, use: str) -> None:
    def form(number: int, drawn: str, inner: str) -> bytes:
        head = f"{number} 0 obj\n<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << {inner} >>"
        return f"{head} /Length {len(drawn)} >>\nstream\n{drawn}\nendstream\nendobj\n".encode()

    # Each of nine levels draws the next one ten times: 10 ** 9 texts.
    forms = [form(level, use * 10, f"/XObject << /X0 {level + 1} 0 R >>") for level in range(100, 109)]
    forms.append(form(109, "BT (a) Tj ET", ""))
    document = re.sub(rb"/X0 \d+ 0 R", b"/X0 100 0 R", pdf(use, form="X"))
    # Without its table a file is read from the first object to the last.
    start, end = document.index(b"xref"), document.index(b"trailer")
    document = document[:start] + b"".join(forms) + document[end:]
    assert "unpack to more than" in failure(document, parser_types=[parser])


@pytest.mark.parametrize("levels", [100, 300, 2000])
def test_deep_nesting_is_read(levels: int) -> None:
    assert parsed("<div>" * levels + "deep") == "deep"


def test_deeper_nesting_is_an_error_and_nothing_is_left_out_silently() -> None:
    assert "cannot be read whole: Excessive depth in document: 2048; part it" in failure("<div>" * 100_000 + "deep")


@pytest.mark.slow
def test_a_long_text_in_html_is_read_whole() -> None:
    assert len(parsed("<p>" + "x" * 10_000_001)) == 10_000_001


def test_thousands_of_comments_take_no_time() -> None:
    comments = "<!--" + "-->  <!--" * 20_000
    assert parsed(comments).startswith("<!---->")
    assert parsed("<!-- a -->\n" * 300 + "<p>b</p>") == "b"


@pytest.mark.slow
def test_a_value_of_many_pieces_is_joined_once() -> None:
    markup = "<p>Name</p>" + "<p>x</p><p> </p>" * 20_000
    found = tables(markup, selectors=["p"], field_names=[["Name"]])
    assert found == {"": {"Name": [" ".join("x" * 20_000)]}}


def test_elements_inside_elements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runners.documents.documenttables.MAX_TAGS", 1000)
    markup = "<div>" * 50 + "<p>x</p>" * 50
    found = failure(markup, table_row_extractor_types=["any"], selectors=["div"], field_names=[["Name"]])
    assert "select the innermost" in found
    assert len(tables(markup, selectors=["p"], field_names=[["x"]])[""]["x"]) == 50


def test_several_documents_have_settings_of_their_own() -> None:
    step = DocumentParser(
        input_names=["a", "b"],
        output_names=["x", "y"],
        table_row_extractor_types=["t", "t"],
        selectors=["td", "p"],
        field_names=[["Name"], ["Name"]],
    )
    page = "<table><tr><td>Name<td>cell</table><p>Name</p><p>paragraph</p>"
    with Sequence([step]).open() as executor:
        found = executor.run(Data({"a": page, "b": page}, metadata={"from": "here"}))
    assert isinstance(found, Data)
    assert found == Data({"x": '{"": {"Name": ["cell"]}}', "y": '{"": {"Name": ["paragraph"]}}'})
    assert found.metadata == Data({"from": "here"})


def test_a_definition_of_konduit_runs() -> None:
    text = """{"steps": [{"@type": "DOCUMENTPARSER", "inputNames": ["document1"], "outputNames": ["out"],
      "parserTypes": ["pdfbox"], "tableRowExtractorTypes": ["divtable"], "selectors": [".p"],
      "fieldNames": [["Name"]], "tableKeys": ["Customer", "Goods"], "partialFieldNames": [[]],
      "tableSpecificFieldNames": {"Customer": ["City"]}, "textExtractionTypes": {"Name": "TEXT"}}]}"""
    with pipelines.loads(text).open() as executor:
        found = executor.run(Data({"document1": INVOICE}))
    assert isinstance(found, Data)
    assert json.loads(found["out"])["Customer"] == {"Name": ["Ada Lovelace"], "City": ["London and Paris"]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "inputNames and outputNames"),
        ({"input_names": ["a", "b"], "output_names": ["a"]}, "outputNames has 1 entries, and inputNames 2"),
        ({"input_names": ["a"], "output_names": ["a"], "table_row_extractor_types": ["t"]}, "selectors"),
        (
            {"input_names": ["a"], "output_names": ["a"], "table_row_extractor_types": ["t"], "selectors": ["td["]},
            '"td[" is not a CSS selector',
        ),
        (
            {
                "input_names": ["a"],
                "output_names": ["a"],
                "table_row_extractor_types": ["t"],
                "selectors": ["td:eq(1)"],
            },
            '"td:eq(1)" is not a CSS selector',
        ),
        ({"input_names": ["a"], "output_names": ["a"], "field_names": []}, "fieldNames has 0 entries"),
    ],
)
def test_a_wrong_step_is_told_when_it_opens(fields: dict[str, Any], said: str) -> None:
    assert said in unopened(**fields)


def test_a_record_that_fails_harms_no_other() -> None:
    with Sequence([DocumentParser(input_names=["in"], output_names=["out"])]).open() as executor:
        found = executor.run_many([Data({"in": b"good"}), Data({"in": b""}), Data({"in": "<p>good"}), Data()])
    assert [found[0], found[2]] == [Data({"out": "good"})] * 2
    assert isinstance(found[1], StepError)
    assert isinstance(found[3], StepError)
