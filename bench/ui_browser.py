"""What the pages of the web UI cost a browser: sizes, times to usable and to rows, filtering, scrolling, heap, changes.

Chromium is Debian's, driven over its own protocol; times are those of the page's clock, from the start of its
navigation or from the key that was pressed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page, ViewportSize, async_playwright
from yurt.http.ui_routes.shell import PageFiles
from yurt.testing.http_api import Api

from bench.table import Row

CHROMIUM: Final = "/usr/bin/chromium"
HAS_CHROMIUM: Final = Path(CHROMIUM).exists()
VIEWPORT: Final = ViewportSize(width=1280, height=800)
TIMES: Final = 5
SCROLL_S: Final = 2
IDLE_S: Final = 10.0
SETTLE_S: Final = 2.0
WINDOW_MS: Final = 1000
"""A new profile has a window of its own, whose menus and tabs Chromium draws first: half a second of CPU."""
KB: Final = 1024
ROW: Final = "main .table-body [role=row] a"
SEEN: Final = """
const seen = (name, selector) => {
  if (window.seenAt?.[name] || !document.querySelector(selector)) return;
  (window.seenAt ??= {})[name] = performance.now();
  console.info(`seen ${name}`);
};
new MutationObserver(() => { seen('page', 'main .figures'); seen('rows', 'main .table-body [role=row] a'); })
  .observe(document, { childList: true, subtree: true });
"""
"""Notes when the first page's figures and the first row of a table are in the document."""
SENT: Final = """() => performance.getEntriesByType('resource').filter((each) => each.name.endsWith('.js'))
  .reduce((sum, each) => sum + each.encodedBodySize, 0)"""
SCROLL: Final = """(seconds) => new Promise((done) => {
  let frames = 0;
  const begun = performance.now();
  const step = (now) => {
    scrollBy(0, 400);
    frames += 1;
    if (now - begun < seconds * 1000) requestAnimationFrame(step);
    else done(frames / ((now - begun) / 1000));
  };
  requestAnimationFrame(step);
})"""
CHANGED: Final = """(text) => new Promise((done) => {
  const rows = () => [...document.querySelectorAll('main .table-body [role=row]')];
  const fits = () => rows().length > 0 && rows().every((row) => row.textContent.includes(text));
  const box = document.getElementById('list-search');
  const begun = performance.now();
  const look = new MutationObserver(() => {
    if (!fits()) return;
    look.disconnect();
    done(performance.now() - begun);
  });
  look.observe(document, { childList: true, subtree: true, characterData: true });
  box.value = text;
  box.dispatchEvent(new InputEvent('input', { bubbles: true }));
})"""
APPEARS: Final = """(text) => {
  window.appeared = new Promise((done) => {
    const look = new MutationObserver(() => {
      if (!document.querySelector('main')?.textContent.includes(text)) return;
      look.disconnect();
      done(Date.now());
    });
    look.observe(document, { childList: true, subtree: true, characterData: true });
  });
}"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser | None]:
    """A browser; None where it is not installed."""
    if not HAS_CHROMIUM:
        yield None
        return
    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@asynccontextmanager
async def opened(browser: Browser, api: Api) -> AsyncIterator[Page]:
    """An empty page of a new profile: nothing is kept from before, and the browser has made its window."""
    context = await browser.new_context(base_url=str(api.client.make_url("")), viewport=VIEWPORT)
    await context.add_init_script(SEEN)
    page = await context.new_page()
    await page.wait_for_timeout(WINDOW_MS)
    yield page
    await context.close()


async def when_seen(page: Page, path: str, name: str) -> float:
    """Milliseconds from the start of a navigation until something was in the document.

    The page itself tells: a locator would load 330 KB of Playwright's scripts into it before that.
    """
    async with page.expect_console_message(lambda message: message.text == f"seen {name}"):
        await page.goto(path, wait_until="commit")
    return float(await page.evaluate(f"() => window.seenAt['{name}']"))


async def repeated(measure: Callable[[], Awaitable[float]]) -> str:
    """Median and longest of some runs."""
    found = [await measure() for _ in range(TIMES)]
    return f"{statistics.median(found):.0f} ({max(found):.0f})"


async def heap_mb(page: Page) -> float:
    """What the page's scripts hold after garbage was collected."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    return float((await session.send("Runtime.getHeapUsage"))["usedSize"]) / KB / KB


async def count_nodes(page: Page) -> int:
    """Elements of the document."""
    return int(await page.evaluate("() => document.querySelectorAll('*').length"))


async def first_page(browser: Browser, api: Api) -> list[Row]:
    """Sizes of scripts, and how soon the first page is of use."""

    async def cold() -> float:
        async with opened(browser, api) as page:
            return await when_seen(page, "/ui/", "page")

    async with opened(browser, api) as page:
        await when_seen(page, "/ui/", "page")
        size = float(await page.evaluate(SENT))
        nodes = await count_nodes(page)
    files = PageFiles()
    every = sum(len(file.zipped) for name in files.names() if name.endswith(".js") and (file := files.find(name)))
    return [
        Row("first page: scripts, KB compressed", "", f"{size / KB:.0f}", "60"),
        Row("all scripts with editor, terminal and charts, KB compressed", "", f"{every / KB:.0f}", ""),
        Row("first page usable, nothing kept, ms (longest)", "", await repeated(cold), "400"),
        Row("first page: elements", "", str(nodes), "3000"),
    ]


async def jobs_page(browser: Browser, api: Api) -> list[Row]:
    """The list of all jobs: rows, filter, scrolling, heap."""

    async def first_rows() -> float:
        async with opened(browser, api) as page:
            return await when_seen(page, "/ui/jobs", "rows")

    rows = [Row("jobs: first rows, nothing kept, ms (longest)", "", await repeated(first_rows), "1000")]
    async with opened(browser, api) as page:
        await when_seen(page, "/ui/jobs", "rows")
        words = iter(f"job-0000{number}" for number in range(1, TIMES + 1))  # ten jobs each, at any scale

        async def filtered() -> float:
            return float(await page.evaluate(CHANGED, next(words)))

        rows.append(Row("jobs: from a typed word to its rows, ms (longest)", "", await repeated(filtered), "100"))
        await when_seen(page, "/ui/jobs", "rows")
        frames = float(await page.evaluate(SCROLL, SCROLL_S))
        rows.append(Row("jobs: scrolling, frames a second", "", f"{frames:.0f}", "50"))
        await page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight)")
        last = await page.locator("main [role=table]").get_attribute("aria-rowcount")
        await page.locator(f"main [role=row][aria-rowindex='{last}'] a").first.wait_for()
        rows.append(Row("jobs: heap of scripts after all rows, MB", "", f"{await heap_mb(page):.1f}", "40"))
        rows.append(Row("jobs: elements", "", str(await count_nodes(page)), "3000"))
    return rows


async def changes(browser: Browser, api: Api) -> Row:
    """From a request that changes something to the screen."""
    async with opened(browser, api) as page:
        await page.goto("/ui/jobs")
        await page.locator(".live", has_text="live").wait_for()
        numbers = iter(range(TIMES))

        async def seen() -> float:
            name = f"seen-{next(numbers)}"
            await page.wait_for_timeout(1000)
            await page.evaluate(APPEARS, name)
            begun = time.time() * 1000
            await api.register(name)
            return float(await page.evaluate("() => window.appeared")) - begun

        return Row("a change to the screen, ms (longest)", "", await repeated(seen), "300")


async def cpu_percent(wait: Callable[[float], Awaitable[Any]]) -> float:
    """CPU time of this process, which is the server's, over a while in which nothing changes."""
    await wait(SETTLE_S)
    begun, wall = time.process_time(), time.perf_counter()
    await wait(IDLE_S)
    return (time.process_time() - begun) / (time.perf_counter() - wall) * 100


async def one_page(browser: Browser, api: Api, wait: Callable[[float], Awaitable[Any]]) -> Row:
    """What one open page costs the server beyond what it needs without."""
    without = await cpu_percent(wait)
    async with opened(browser, api) as page:
        await page.goto("/ui/jobs")
        await page.locator(".live", has_text="live").wait_for()
        cost = await cpu_percent(wait) - without
    return Row("an open page, nothing changes: % of a core", "", f"{max(0.0, cost):.3f}", "0.05")


async def browser_rows(api: Api, small: Api, wait: Callable[[float], Awaitable[Any]]) -> list[Row]:
    """All that a browser tells; nothing where there is none."""
    async with chromium() as browser:
        if browser is None:
            return [Row("in a browser", "", "Debian's chromium is not installed", "")]
        return [
            *await first_page(browser, api),
            *await jobs_page(browser, api),
            await changes(browser, small),
            await one_page(browser, api, wait),
        ]
