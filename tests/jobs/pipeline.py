"""Job: sales of four regions, CSV files, go into a database, aggregates, plots and a report, in 40 actions; its price list is wrong.

The database is one file, so whoever asks it for anything runs again when a price in it changes; whoever only uses answers
in which no price occurs (how many were sold) is cut off. What is made of the cleaned sales alone is kept.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

from . import Fix, Job

if TYPE_CHECKING:
    from pathlib import Path

REGIONS = ("east", "north", "south", "west")
MONTHS = tuple(f"2024-{month:02}" for month in range(1, 7))
PRODUCTS = ("beans", "coffee", "maize", "rice", "salt", "sugar", "tea")
ROWS = 40

PROGRAM = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else os.path.realpath(sys.executable)
PYTHON = f"{PROGRAM} -I"
LOAD = """\
import csv, sqlite3, sys
table, source = sys.argv[1:3]
with open(source, newline="") as file:
    rows = list(csv.reader(file))
base = sqlite3.connect("db/sales.db")
with base:
    base.execute(f"delete from {table}")
    base.executemany(f"insert into {table} values ({','.join('?' * len(rows[0]))})", rows)
print(table, len(rows))
"""
SCHEMA = """\
create table sales (day text, region text, product text, customer text, units integer);
create table prices (product text primary key, cents integer);
create table regions (region text primary key, name text);
create view revenue as select substr(day, 1, 7) month, region, product, customer, units, units * cents cents
  from sales join prices using (product);
"""
TO_HTML = """\
import html, sys
print("<!doctype html><meta charset=utf-8><title>Sales</title>")
table = False
for line in sys.stdin.read().splitlines():
    row = line.startswith("|")
    if row != table:
        print("<table>" if row else "</table>")
        table = row
    text = html.escape(line)
    if line.startswith("#"):
        mark = len(line) - len(line.lstrip("#"))
        print(f"<h{mark}>{text.lstrip('# ')}</h{mark}>")
    elif row:
        if set(line) - set("|-: "):
            print("<tr>" + "".join(f"<td>{cell.strip()}</td>" for cell in text.strip("|").split("|")))
    elif line.startswith("!["):
        print(f'<img alt="{text[2:].partition("]")[0]}" src="{text.rpartition("(")[2].rstrip(")")}">')
    elif line:
        print(f"<p>{text}</p>")
if table:
    print("</table>")
"""
PLOT = """\
set terminal svg size 640,400 name "plot"
set datafile separator ","
set key outside
set style data linespoints
set xtics rotate by -45
set yrange [0:*]
set title what
set output out
plot for [column=2:5] in using column:xtic(1) title columnhead(column)
"""
BARS = """\
set terminal svg size 640,400 name "bars"
set datafile separator ","
set style fill solid 0.6
set boxwidth 0.8
set yrange [0:*]
unset key
set title what
set output out
plot in using 0:2:xtic(1) with boxes
"""
TOTALS = """\
BEGIN { FS = "," }
FNR > 1 { for (i = 2; i <= NF; i++) sum[FILENAME] += $i }
END { for (file in sum) print file ": " sum[file] }
"""
TABLE = """\
BEGIN { FS = "," }
{ line = "|"; for (i = 1; i <= NF; i++) line = line " " $i " |"; print line }
NR == 1 { gsub(/[^|]+/, "---", line); print line }
"""

WRONG = "printf 'beans,220\\ncoffee,950\\nmaize,120\\nrice,180\\nsalt,60\\nsugar,140\\ntea,4500\\n' > work/prices.csv"
RIGHT = WRONG.replace("4500", "450")
SAME = "{ printf 'beans,220\\ncoffee,950\\nmaize,120\\n'; printf 'rice,180\\nsalt,60\\nsugar,140\\ntea,450\\n'; } > work/prices.csv"
DEAR_SALT = b"beans,220\ncoffee,950\nmaize,120\nrice,180\nsalt,90\nsugar,140\ntea,450\n"


def _ask(query: str, out: str) -> str:
    return f'sqlite3 -csv -header db/sales.db "{query}" > {out}; wc -l < {out}'


def _by_month(what: str, region: str) -> str:
    query = f"select month, sum({what}) {region} from revenue where region = '{region}' group by month order by month"
    return _ask(query, f"work/{what}-{region}.csv")


def _joined(what: str) -> str:
    first, *rest = (f"work/{what}-{region}.csv" for region in REGIONS)
    joins = "".join(f" | join -t, --header - {file}" for file in rest)
    return f"cat {first}{joins} | tr -d '\\r' > out/{what}.csv; head -1 out/{what}.csv"


def _plot(script: str, source: str, out: str, title: str) -> str:
    return f"gnuplot -e \"in='{source}'; out='out/{out}.svg'; what='{title}'\" tools/{script}.gp && wc -c < out/{out}.svg"


ACTIONS = (
    "mkdir work db out; ls raw | sort > work/files.txt; wc -l < work/files.txt",
    "for f in raw/*.csv; do head -1 $f; done | sort | uniq -c",
    "while read -r f; do tail -n +2 raw/$f; done < work/files.txt | sort > work/all.csv; wc -l < work/all.csv",
    'awk -F, \'NF == 5 && $5 > 0 {print > "work/clean.csv"; next} {print > "work/rejects.csv"}\' work/all.csv; wc -l work/rejects.csv',
    "cut -d, -f4 work/clean.csv | sort | uniq -c | sort -k1,1nr -k2 > work/customers.txt; head -3 work/customers.txt",
    WRONG,
    "printf 'east,The East\\nnorth,The North\\nsouth,The South\\nwest,The West\\n' > work/regions.csv",
    "cut -d, -f3 work/clean.csv | sort -u > work/products.txt; cat work/products.txt",
    "join -t, -v 1 work/products.txt work/prices.csv > work/unpriced.txt; cat work/unpriced.txt; wc -l < work/unpriced.txt",
    "sqlite3 db/sales.db < tools/schema.sql && sqlite3 db/sales.db .tables",
    f"{PYTHON} tools/load.py sales work/clean.csv",
    f"{PYTHON} tools/load.py regions work/regions.csv",
    f"{PYTHON} tools/load.py prices work/prices.csv",
    "sqlite3 db/sales.db 'pragma integrity_check; select count(*), sum(units) from revenue'",
    *(_by_month("cents", region) for region in REGIONS),
    *(_by_month("units", region) for region in REGIONS),
    _ask("select product, sum(cents) cents from revenue group by product order by product", "work/product-cents.csv"),
    _ask("select product, sum(units) units from revenue group by product order by product", "work/product-units.csv"),
    _ask("select customer, sum(units) units from revenue group by customer order by 2 desc, 1 limit 5", "work/best.csv"),
    "cut -c 1-7 work/clean.csv | sort | uniq -c | awk '{print $2 \",\" $1}' > work/orders.csv; cat work/orders.csv",
    _joined("cents"),
    _joined("units"),
    _plot("lines", "out/cents.csv", "revenue", "Revenue in cents"),
    _plot("lines", "out/units.csv", "units", "Units"),
    _plot("bars", "work/product-cents.csv", "products", "Revenue per product"),
    _plot("bars", "work/orders.csv", "orders", "Orders per month"),
    "awk -f tools/totals.awk out/cents.csv work/product-cents.csv | sort; [ -s work/unpriced.txt ] && cat work/unpriced.txt || echo 'all have a price'",
    "{ echo '# Sales'; echo; echo \"$(wc -l < work/clean.csv) sales, $(wc -l < work/rejects.csv) rejected.\"; } > work/head.md",
    "{ echo '## Revenue'; echo; tr -d '\\r' < out/cents.csv | awk -f tools/table.awk; echo; echo '![Revenue](revenue.svg)'; } > work/revenue.md",
    "{ echo '## Units'; echo; awk -f tools/table.awk out/units.csv; echo; awk -f tools/table.awk work/best.csv; echo '![Units](units.svg)'; } > work/units.md",
    "cat work/head.md work/revenue.md work/units.md > out/report.md; wc -l < out/report.md",
    f"{PYTHON} tools/html.py < out/report.md > out/report.html; grep -c '<tr>' out/report.html",
    "cd out && sha256sum *.csv *.svg report.* > SUMS; cut -c 1-8,65- SUMS; cd ..",
    "tar --sort=name --mtime=@0 --owner=0 --group=0 --mode=644 -cf sales.tar out/*; gzip -nf sales.tar; tar -tzf sales.tar.gz | wc -l",
)


def make_sales(folder: Path) -> None:
    """Write the sales and the scripts into the folder: the same each time."""
    chance = random.Random(7)
    (folder / "raw").mkdir()
    for region in REGIONS:
        for month in MONTHS:
            rows = ["day,region,product,customer,units"]
            for _ in range(ROWS):
                units = (
                    chance.choice(("1", "2", "3", "5", "8", "12", "0", "-1"))
                    if chance.random() < 0.2
                    else str(chance.randint(1, 30))
                )
                customer = f"c{chance.randint(1, 25):02}"
                rows.append(f"{month}-{chance.randint(1, 28):02},{region},{chance.choice(PRODUCTS)},{customer},{units}")
            (folder / "raw" / f"{region}-{month}.csv").write_text("\n".join(rows) + "\n")
    (folder / "tools").mkdir()
    scripts = {
        "load.py": LOAD, "schema.sql": SCHEMA, "html.py": TO_HTML, "lines.gp": PLOT, "bars.gp": BARS, "totals.awk": TOTALS,
        "table.awk": TABLE,
    }  # fmt: skip
    for name, text in scripts.items():
        (folder / "tools" / name).write_text(text)


# Who runs again when a price is another one: all that ask the database, and what is made of revenue; and who is cut off then.
PRICED = (9, *range(13, 26), 27, 29, 31, 33, 35, 37, 38, 39, 40)
UNITS = (28, 30, 36)

PIPELINE = Job(
    "data pipeline",
    (PROGRAM, "sqlite3", "gnuplot", "awk", "join", "tar", "gzip"),
    make_sales,
    ACTIONS,
    (
        Fix("the wrong price list is replaced", (6, *PRICED), {6: RIGHT}, cut_off=UNITS),
        Fix("the same list, written otherwise", (6,), {6: SAME}, cut_off=tuple(sorted((*PRICED, *UNITS)))),
        Fix("the price list is patched", PRICED, patch=("/workspace/work/prices.csv", DEAR_SALT, 6), cut_off=UNITS),
        Fix("a plot is dropped", (39, 40), dropped=(32,)),
    ),
)
