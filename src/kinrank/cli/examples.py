"""An example of each command, shown at the end of its help."""

from __future__ import annotations

EXAMPLES = {
    "clicks": "kinrank clicks events.parquet --out judgments.csv",
    "log": "kinrank log --engine elasticsearch+http://localhost:9200/movies --features features.toml "
    "--judgments judgments.csv --out logged.parquet",
    "convert": "kinrank convert train.csv train.parquet",
    "split": "kinrank split judged.csv train.parquet test.parquet --group customer",
    "describe": "kinrank describe train.parquet --nearest 5",
    "headroom": "kinrank headroom judged.csv --group customer",
    "tune": "kinrank tune train.parquet --study trials --budget 600",
    "compare": "kinrank compare test.parquet lightgbm kin --train train.parquet",
    "report": "kinrank report test.parquet lightgbm kin --train train.parquet --out report.html",
    "train": "kinrank train train.parquet --model model --validate test.parquet",
    "rank": "kinrank rank model candidates.parquet --out ranked.run",
    "explain": "kinrank explain model candidates.parquet --query 17",
    "serve": "kinrank serve model",
    "models": "kinrank models s3://bucket/models --publish model",
    "judgments": "kinrank judgments sqlite:///judgments.db --export live.parquet",
    "rules": "kinrank rules sqlite:///judgments.db --query 'iron man' --pin movie-4 --also-similar",
    "forget": "kinrank forget postgresql://kinrank@db/kinrank --client c-81",
    "audit": "kinrank audit sqlite:///judgments.db",
    "key": "kinrank key keys.txt shop",
    "demo": "kinrank demo",
    "doctor": "kinrank doctor judged.csv",
}
"""The example of each command."""
