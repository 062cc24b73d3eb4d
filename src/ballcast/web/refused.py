"""What a request is told when it is not done: a status and one sentence, as JSON {"error": sentence}."""


class Refused(Exception):
    """status: HTTP's. sentence: what is wrong and what to do. retry_s: after how long to try again."""

    def __init__(self, status: int, sentence: str, *, retry_s: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_s = status, sentence, retry_s

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_s is None else {"Retry-After": str(self.retry_s)}
