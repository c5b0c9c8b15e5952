"""The viewer: subscribes to scores and alerts as any other client would, and enters them on the board."""

from __future__ import annotations

from connectors.codecs.registry import codec_of
from connectors.mqtt.config import MqttSourceConfig
from connectors.records import Records
from streamer.demo.machines.board import Board
from streamer.demo.reader import Reader

SCORES = "factory/+/+/score"
ALERTS = "alerts/+"
WANTED = frozenset({"machine", "window", "score", "state"})


class ScoreViewer(Reader):
    """Takes the scores and alerts of one run."""

    def __init__(self, url: str, client_id: str, board: Board) -> None:
        # Retained alerts are those of earlier runs.
        config = MqttSourceConfig(
            name="viewer",
            url=url,
            client_id=client_id,
            topics=(SCORES, ALERTS),
            codec="json",
            retained="skip",
            expiry=60.0,
        )
        super().__init__(config.build(), self._seen)
        self._codec = codec_of(config.codec)
        self._board = board

    def _seen(self, records: Records) -> bool:
        topics = records.topics_of()
        batch = self._codec.decode(records, WANTED).batch
        scores = 0
        for row, data in zip(batch.rows.tolist(), batch.to_list(), strict=True):
            machine, turn, score = data.get("machine"), data.get("window"), data.get("score")
            if not isinstance(machine, str) or not isinstance(turn, int) or not isinstance(score, float):
                continue
            if topics[row].startswith("alerts/"):
                if data.get("state") == "on":
                    self._board.alerted(machine, turn)
                else:
                    self._board.recovered(machine)
            else:
                self._board.scored(machine, turn, score)
                scores += 1
        return scores > 0
