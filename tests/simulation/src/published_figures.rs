//! Published and recorded figures of three protocols, which are printed next to the figures of a
//! run. Protocol A packs pods with GPUs, protocol B empties nodes, and protocol C runs batch
//! traces.

use crate::packing::Policy;

/// Returns the percent of GPUs that are allocated after all arrivals of protocol A. The first
/// figure comes from the authors (ATC '23), the second (`_2`) from another implementation.
pub fn inflation_figures(list: &str, policy: Policy) -> (Option<f64>, Option<f64>) {
    let row = match list {
        "default" => [
            87.47, 87.67, 90.85, 90.85, 93.08, 93.22, 94.48, 95.39, 95.36,
        ],
        "cpu050" => [
            91.24, 91.02, 93.27, 93.47, 93.79, 93.95, 94.47, 95.21, 95.06,
        ],
        "gpushare40" => [
            86.00, 86.19, 89.56, 89.37, 91.69, 91.80, 93.02, 94.15, 94.04,
        ],
        "gpuspec10" => [
            87.43, 87.76, 90.39, 90.45, 93.30, 93.43, 94.43, 94.95, 94.68,
        ],
        "multigpu20" => [
            88.69, 88.40, 92.06, 92.16, 93.93, 94.08, 94.99, 95.65, 95.62,
        ],
        _ => return (None, None),
    };
    let [
        random,
        random_2,
        dot,
        dot_2,
        best,
        best_2,
        first_2,
        fgd,
        fgd_2,
    ] = row;
    match policy {
        Policy::Random => (Some(random), Some(random_2)),
        Policy::DotProduct => (Some(dot), Some(dot_2)),
        Policy::BestFit => (Some(best), Some(best_2)),
        Policy::FirstFit => (None, Some(first_2)),
        // The policy of Hayward is compared with the best published one, fragmentation gradient
        // descent.
        Policy::Gradient => (Some(fgd), Some(fgd_2)),
    }
}

/// Protocol B: number of large nodes emptied, for the seeds 42, 43 and 44. The budget of moves is
/// in percent of the remaining pods.
pub const DEFRAGMENTED: [(u64, [u64; 3]); 4] = [
    (1, [19, 21, 22]),
    (2, [33, 35, 36]),
    (5, [74, 74, 75]),
    (10, [131, 132, 132]),
];

/// The result of a policy on a trace in protocol C. A figure is `None` if it is not recorded.
/// [`Summary`](crate::measure::Summary) defines the figures, and times and slowdowns are means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub trace: &'static str,
    pub nodes: usize,
    /// The name of a [`Baseline`](crate::Baseline).
    pub policy: &'static str,
    pub wait_s: Option<f64>,
    pub flow_s: Option<f64>,
    pub slowdown: Option<f64>,
    pub deviation: Option<f64>,
    pub jain: Option<f64>,
    pub waste_percent: Option<f64>,
    pub evictions: Option<f64>,
}

/// Name of the policy, and its figures in the order of [`Row`]. A negative figure is not recorded.
type Figures = (&'static str, [f64; 7]);

const NOT_RECORDED: f64 = -1.0;

const KTH: [Figures; 6] = [
    (
        "fcfs",
        [353_776.0, 362_636.0, 6_815.0, 0.809, 0.203, 0.0, 0.0],
    ),
    ("easy", [6_835.0, 15_695.0, 92.69, 0.485, 0.587, 0.0, 0.0]),
    (
        "fair-easy",
        [5_542.0, 14_402.0, 42.36, 0.464, 0.745, 0.0, 0.0],
    ),
    ("fluid", [27.0, 10_471.0, 1.60, 0.005, 1.000, 0.299, 2.73]),
    (
        "gang",
        [5_544.0, 14_557.0, 73.2, 0.445, 0.715, 0.499, 0.050],
    ),
    (
        "gang-no-checkpoint",
        [6_017.0, 15_184.0, 81.6, 0.442, 0.700, 2.216, 0.056],
    ),
];
const GAIA: [Figures; 14] = [
    ("fcfs", [28_489.0, 42_844.0, 242.5, 0.423, 0.340, 0.0, 0.0]),
    ("easy", [12_267.0, 26_622.0, 92.09, 0.329, 0.546, 0.0, 0.0]),
    (
        "fair-easy",
        [5_771.0, 20_126.0, 43.01, 0.166, 0.897, 0.0, 0.0],
    ),
    ("fluid", [177.0, 19_054.0, 1.36, 0.0004, 1.000, 0.082, 1.83]),
    (
        "gang",
        [5_272.0, 20_035.0, 26.1, 0.042, 0.965, 0.210, 0.086],
    ),
    (
        "gang-no-checkpoint",
        [13_203.0, 28_826.0, 77.6, 0.103, 0.967, 7.893, 0.100],
    ),
    // A process is preempted only for a user that is this many processes below the fair share.
    (
        "fluid-2",
        [
            NOT_RECORDED,
            19_012.0,
            1.51,
            0.0006,
            NOT_RECORDED,
            0.044,
            1.27,
        ],
    ),
    (
        "fluid-4",
        [
            NOT_RECORDED,
            19_005.0,
            1.52,
            0.0011,
            NOT_RECORDED,
            0.038,
            1.16,
        ],
    ),
    // A job is not preempted after it has run for this time.
    (
        "gang-1h",
        [
            6_226.0,
            NOT_RECORDED,
            34.9,
            0.118,
            NOT_RECORDED,
            0.21,
            NOT_RECORDED,
        ],
    ),
    (
        "gang-4h",
        [
            5_973.0,
            NOT_RECORDED,
            28.8,
            0.077,
            NOT_RECORDED,
            0.81,
            NOT_RECORDED,
        ],
    ),
    (
        "gang-12h",
        [
            6_647.0,
            NOT_RECORDED,
            33.3,
            0.058,
            NOT_RECORDED,
            1.99,
            NOT_RECORDED,
        ],
    ),
    (
        "gang-24h",
        [
            8_105.0,
            NOT_RECORDED,
            37.7,
            0.055,
            NOT_RECORDED,
            3.54,
            NOT_RECORDED,
        ],
    ),
    // The classes have the weights 200, 100 and 25.
    (
        "easy-weighted",
        [
            NOT_RECORDED,
            NOT_RECORDED,
            NOT_RECORDED,
            0.353,
            NOT_RECORDED,
            NOT_RECORDED,
            NOT_RECORDED,
        ],
    ),
    (
        "fluid-weighted",
        [
            765.0,
            NOT_RECORDED,
            1.99,
            0.0004,
            1.000,
            0.084,
            NOT_RECORDED,
        ],
    ),
];
const GAIA_88: [Figures; 7] = [
    ("fcfs", [86_899.0, 101_254.0, 854.7, 0.583, 0.236, 0.0, 0.0]),
    ("easy", [35_058.0, 49_413.0, 270.0, 0.441, 0.427, 0.0, 0.0]),
    (
        "fair-easy",
        [20_608.0, 34_964.0, 139.1, 0.240, 0.870, 0.0, 0.0],
    ),
    ("fluid", [919.0, 26_081.0, 2.54, 0.0007, 1.000, 0.095, 2.07]),
    (
        "gang",
        [17_006.0, 32_072.0, 87.8, 0.139, 0.962, 0.311, 0.185],
    ),
    (
        "easy-weighted",
        [
            NOT_RECORDED,
            NOT_RECORDED,
            NOT_RECORDED,
            0.484,
            NOT_RECORDED,
            NOT_RECORDED,
            NOT_RECORDED,
        ],
    ),
    (
        "fluid-weighted",
        [
            4_034.0,
            NOT_RECORDED,
            7.65,
            0.0007,
            1.000,
            0.097,
            NOT_RECORDED,
        ],
    ),
];

/// Mean flow time in seconds and mean bounded slowdown that others published for EASY on kth1996.
pub const EASY_ON_KTH: (f64, f64) = (15_696.8, 92.58);

pub fn batch_rows() -> Vec<Row> {
    let rows = |trace, nodes, figures: &'static [Figures]| {
        figures
            .iter()
            .map(move |figures| row(trace, nodes, figures))
    };
    rows("kth1996", 100, &KTH)
        .chain(rows("gaia2014", 100, &GAIA))
        .chain(rows("gaia2014", 88, &GAIA_88))
        .collect()
}

fn row(trace: &'static str, nodes: usize, published: &'static Figures) -> Row {
    let (policy, figures) = published;
    let [
        wait_s,
        flow_s,
        slowdown,
        deviation,
        jain,
        waste_percent,
        evictions,
    ] = figures.map(|figure| Some(figure).filter(|figure| *figure >= 0.0));
    Row {
        trace,
        nodes,
        policy,
        wait_s,
        flow_s,
        slowdown,
        deviation,
        jain,
        waste_percent,
        evictions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Baseline;

    #[test]
    fn every_row_can_be_run() {
        for row in batch_rows() {
            assert!(
                Baseline::find_by_name(row.policy).is_some(),
                "{}",
                row.policy
            );
        }
    }
}
