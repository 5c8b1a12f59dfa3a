"""An example of each command, shown at the end of its help."""

from __future__ import annotations

EXAMPLES = {
    "clicks": "kinrank clicks events.parquet --out judgments.csv",
    "log": "kinrank log --engine elasticsearch://localhost:9200/movies --features features.toml "
    "--judgments judgments.csv --out logged.parquet",
    "convert": "kinrank convert train.csv train.parquet",
    "split": "kinrank split judged.csv train.parquet test.parquet --group customer",
    "describe": "kinrank describe train.parquet --nearest 5",
    "headroom": "kinrank headroom judged.csv --group customer",
    "hybrid": "kinrank hybrid logged.parquet --model hybrid",
    "tune": "kinrank tune train.parquet --study trials --budget 600",
    "evaluate": "kinrank evaluate test.parquet model today.run",
    "compare": "kinrank compare test.parquet lightgbm kin --train train.parquet",
    "report": "kinrank report test.parquet lightgbm kin --train train.parquet --out report.html",
    "train": "kinrank train train.parquet --model model --validate test.parquet",
    "rank": "kinrank rank model candidates.parquet --out ranked.run",
    "explain": "kinrank explain model candidates.parquet --query 17",
    "weights": "kinrank weights model candidates.parquet --query 17",
    "serve": "kinrank serve model",
    "publish": "kinrank publish model s3://bucket/models",
    "models": "kinrank models s3://bucket/models --use 11",
    "judgments": "kinrank judgments sqlite:///judgments.db --export live.parquet",
    "key": "kinrank key keys.txt shop",
    "interleave": "kinrank interleave events.jsonl",
    "doctor": "kinrank doctor",
}
"""The example of each command."""
