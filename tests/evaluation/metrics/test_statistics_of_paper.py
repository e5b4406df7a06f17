"""Table 6 of the GraphRAG paper: its p-values follow from its Z-values by the family that judging takes.

15 pairs of six conditions, in the table's order, for four criteria on two data sets. The paper says that p-values are
corrected by Holm–Bonferroni, and not over which family: they come out if it is the pairs of one criterion and data set.
"""

from __future__ import annotations

import pytest
from scipy import stats

from hirag_dist.evaluation.metrics.statistics import holm

TABLE_6 = {
    ("comprehensiveness", "podcasts"): (
        "-0.06 -1.56 -4.1 -3.42 -6.2 -7.45 -8.17 -8.12 -8.85 -1.96 -0.23 -1.62 -0.56 -0.66 -1.97",
        "1000 633 0 6 0 0 0 0 0 389 1000 633 1000 1000 389",
    ),
    ("comprehensiveness", "news"): (
        "-2.03 -3.62 -5.07 -5.63 -6.3 -7.78 -8.34 -8.44 -8.27 -0.45 -1.54 -4.01 -0.86 -2.94 -3.68",
        "170 2 0 0 0 0 0 0 0 777 371 0 777 16 2",
    ),
    ("empowerment", "podcasts"): (
        "-4.3 -3.76 -2.2 -1.27 -3.71 -1.5 -0.55 -0.57 -4.1 -1.23 -2.54 -1.73 -1.78 0 -0.86",
        "0 2 281 1000 3 936 1000 1000 0 1000 120 682 682 1000 1000",
    ),
}
ROUNDED_Z, ROUNDED_P = 0.005, 0.0005


@pytest.mark.parametrize("cell", TABLE_6, ids=" ".join)
def test_p_values_follow_from_z_values_corrected_within_one_criterion(cell: tuple[str, str]) -> None:
    z_values, thousandths = ([float(each) for each in column.split()] for column in TABLE_6[cell])
    assert len(z_values) == len(thousandths) == 15

    def corrected(shift: float) -> list[float]:
        return holm([2 * float(stats.norm.sf(max(abs(z) + shift, 0.0))) for z in z_values])

    for low, printed, high in zip(corrected(ROUNDED_Z), thousandths, corrected(-ROUNDED_Z), strict=True):
        if printed:
            assert low - ROUNDED_P <= printed / 1000 <= high + ROUNDED_P
        else:
            assert low < 0.001
