from yurt.sdk.log_engines import LogEngine
from yurt.testing.suites.log_engine_suite import LogEngineSuite
from yurt_site_tools.journal import Journal


class TestJournal(LogEngineSuite):
    def make(self) -> LogEngine:
        return Journal()
