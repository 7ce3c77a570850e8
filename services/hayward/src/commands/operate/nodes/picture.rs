//! `hayward nodes --picture FILE`: draws the fleet as an SVG picture.
//!
//! Each node that is up is a square whose area is its memory. Each piece of work is a horizontal
//! stripe, the largest on top. Free space is black and comes last. Colours are users, and patterns
//! are kinds of work. A stripe has a tooltip with its owner and a link to its work.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::ValueEnum;
use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy};
use hayward_vocabulary::{UserName, WorkKind};

use super::occupancy::{NODE_PAGES, work_on_node};
use crate::connection::pages;
use crate::connection::{Role, Service, Session};
use crate::output::note;

/// Pixels of the side of a node of 1 GiB.
const SIDE_OF_GIB: f64 = 24.0;
/// Pixels between two nodes.
const GAP: f64 = 14.0;
const PICTURE_WIDTH: f64 = 1_200.0;
const HEADER_HEIGHT: f64 = 40.0;
const GIB: f64 = 1_073_741_824.0;

/// Order of the nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The largest, then by name.
    #[default]
    Size,
    Name,
}

pub async fn run(session: Session, file: &Path, sort: Sort) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response = pages::read_all(&client, "/v1/occupancy", NODE_PAGES).await?;
    let all: Occupancy = serde_json::from_value(response)?;
    let picture = draw_svg(all.nodes, sort, &session.url(Service::JobConverter)?);
    std::fs::write(file, picture).with_context(|| file.display().to_string())?;
    note(&format!("{} shows the nodes", file.display()));
    Ok(())
}

/// Draws the picture. `jobs_url` is the address of job-converter for the links.
fn draw_svg(mut nodes: Vec<NodeOccupancy>, sort: Sort, jobs_url: &str) -> String {
    nodes.retain(|node| node.up);
    nodes.sort_by(|left, right| match sort {
        Sort::Size => {
            let by_memory = right.capacity.memory_bytes.cmp(&left.capacity.memory_bytes);
            by_memory.then_with(|| left.node.cmp(&right.node))
        }
        Sort::Name => left.node.cmp(&right.node),
    });
    // The nodes fill rows from left to right, like words in a paragraph.
    let (mut x, mut y, mut row_height) = (GAP, HEADER_HEIGHT, 0.0_f64);
    let mut shapes = String::new();
    for node in &nodes {
        let side = SIDE_OF_GIB * to_gib(node.capacity.memory_bytes).sqrt().max(0.5);
        if x + side > PICTURE_WIDTH && x > GAP {
            (x, y, row_height) = (GAP, y + row_height + GAP, 0.0);
        }
        draw_node(&mut shapes, node, &Square { x, y, side }, jobs_url);
        (x, row_height) = (x + side + GAP, row_height.max(side));
    }
    let height = y + row_height + GAP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {PICTURE_WIDTH} {height:.1}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n{PATTERNS}\
         <text x=\"{GAP}\" y=\"24\">{}</text>\n{shapes}</svg>\n",
        header_text(&nodes)
    )
}

/// Patterns of thin lines, drawn over the colour of the user.
const PATTERNS: &str = "<defs>\
<pattern id=\"service\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path d=\"M0 6L6 0\" stroke=\"#000\" stroke-width=\"1\"/></pattern>\
<pattern id=\"reservation\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path d=\"M0 0H6M0 0V6\" stroke=\"#000\" stroke-width=\"1\"/></pattern></defs>\n";

/// Returns the header with the total memory, and the part of each kind of work.
fn header_text(nodes: &[NodeOccupancy]) -> String {
    let total: f64 = nodes
        .iter()
        .map(|it| to_gib(it.capacity.memory_bytes))
        .sum();
    let total_of = |kind: WorkKind| -> f64 {
        let quanta_gib = |node: &NodeOccupancy| {
            let shares = node.shares.iter().filter(|share| share.kind == kind);
            to_f64(shares.map(|share| share.order).sum()) * quantum_gib(node)
        };
        nodes.iter().map(quanta_gib).sum()
    };
    let (jobs, services) = (total_of(WorkKind::Job), total_of(WorkKind::Service));
    let reservations = total_of(WorkKind::Reservation);
    let free = (total - jobs - services - reservations).max(0.0);
    format!(
        "{} nodes, {total:.0} GiB: jobs {jobs:.0}, services {services:.0}, \
         reservations {reservations:.0}, unoccupied {free:.0}",
        nodes.len()
    )
}

/// Upper left corner and side of a node, in pixels.
struct Square {
    x: f64,
    y: f64,
    side: f64,
}

fn draw_node(shapes: &mut String, node: &NodeOccupancy, square: &Square, jobs_url: &str) {
    let Square { x, y, side } = *square;
    let memory_gib = to_gib(node.capacity.memory_bytes);
    let name = escape(node.node.as_str());
    // Writing to a string never fails.
    let _ = writeln!(
        shapes,
        "<g><title>{name}: {memory_gib:.1} GiB</title>\
         <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side:.1}\" height=\"{side:.1}\"/></g>"
    );
    let total_quanta = to_f64(node.order.max(node.held).max(1));
    let mut top = y;
    for stripe in work_on_node(node) {
        let height = side * to_f64(stripe.quanta) / total_quanta;
        let bounds =
            format!("x=\"{x:.1}\" y=\"{top:.1}\" width=\"{side:.1}\" height=\"{height:.1}\"");
        let pattern = match stripe.kind {
            WorkKind::Job => None,
            WorkKind::Service => Some("service"),
            WorkKind::Reservation => Some("reservation"),
        };
        let overlay = pattern.map_or_else(String::new, |id| {
            format!("<rect {bounds} fill=\"url(#{id})\"/>")
        });
        let _ = writeln!(
            shapes,
            "<a href=\"{jobs_url}/v1/{}/{}\"><title>{} of {}: {} processes, {} quanta</title>\
             <rect {bounds} fill=\"hsl({},60%,60%)\"/>{overlay}</a>",
            route_segment(stripe.kind),
            stripe.work,
            stripe.work,
            escape(stripe.user.as_str()),
            stripe.processes,
            stripe.quanta,
            hue(stripe.user),
        );
        top += height;
    }
}

fn route_segment(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Job => "jobs",
        WorkKind::Service => "services",
        WorkKind::Reservation => "reservations",
    }
}

/// Returns a hue in degrees, from a hash of the user name (FNV-1a), so that a user has the same
/// colour in every picture.
fn hue(user: &UserName) -> u32 {
    let hash = user.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash % 360
}

fn quantum_gib(node: &NodeOccupancy) -> f64 {
    to_gib(node.quantum.0.memory_bytes)
}

fn to_gib(bytes: u64) -> f64 {
    to_f64(bytes) / GIB
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a picture is a few hundred pixels wide"
)]
fn to_f64(amount: u64) -> f64 {
    amount as f64
}

/// Escapes text for SVG.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::AllocationState;
    use hayward_rm_scheduler_api::occupancy::ShareOccupancy;
    use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, Timestamp, WorkId};

    use super::*;

    fn share(work: &str, kind: WorkKind, user: &str, quanta: u64) -> ShareOccupancy {
        ShareOccupancy {
            allocation: AllocationId::new(format!("alc_{work}")).unwrap(),
            work: WorkId::new(work).unwrap(),
            kind,
            user: UserName::new(user).unwrap(),
            class: "normal".into(),
            order: quanta,
            state: AllocationState::Running,
            granted_at: Timestamp::default(),
            investment_ms: 0,
            fixed: false,
            leaving: false,
            purged: false,
            squatter: false,
            gpus: Vec::new(),
        }
    }

    fn node(name: &str, quanta: u64, shares: Vec<ShareOccupancy>) -> NodeOccupancy {
        let held = shares.iter().map(|share| share.order).sum();
        NodeOccupancy {
            node: NodeName::new(name).unwrap(),
            pool: "default".into(),
            up: true,
            responsive: true,
            online: true,
            quiesced: false,
            blocked: None,
            capacity: Size::memory(quanta << 30),
            quantum: Quantum::default(),
            order: quanta,
            held,
            free: quanta - held,
            over: 0,
            fixed: 0,
            vacating: 0,
            processes: shares.len() as u64,
            reservable: false,
            classes: Vec::new(),
            shares,
        }
    }

    // The area of a square is memory, and the height of a stripe is its part of the quanta.
    //
    #[test]
    fn a_picture_has_squares_by_memory_and_stripes_by_quanta() {
        let work = vec![
            share("job_a", WorkKind::Job, "ann", 1),
            share("svc_s", WorkKind::Service, "bob", 6),
            share("job_a", WorkKind::Job, "ann", 1),
        ];
        let mut lost = node("n3", 9, Vec::new());
        lost.up = false;
        let nodes = vec![node("n1", 4, Vec::new()), node("n2", 16, work), lost];
        let picture = draw_svg(nodes, Sort::Size, "http://jobs");
        let header = "2 nodes, 20 GiB: jobs 2, services 6, reservations 0, unoccupied 12";
        assert!(picture.contains(header), "{picture}");
        // The larger node comes first and is twice as wide. The largest stripe is on top, and a job
        // has one stripe.
        let position_of = |text: &str| {
            picture
                .find(text)
                .unwrap_or_else(|| panic!("{text} in {picture}"))
        };
        assert!(position_of("n2: 16.0 GiB") < position_of("n1: 4.0 GiB"));
        assert!(position_of("width=\"96.0\"") < position_of("width=\"48.0\""));
        assert!(
            position_of("svc_s of bob: 1 processes, 6 quanta")
                < position_of("job_a of ann: 2 processes, 2 quanta")
        );
        assert!(picture.contains("href=\"http://jobs/v1/jobs/job_a\""));
        assert!(picture.contains("height=\"36.0\" fill=\"url(#service)\""));
        assert!(!picture.contains("n3"));
    }
}
