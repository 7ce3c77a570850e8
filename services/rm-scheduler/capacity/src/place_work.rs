//! Places work in serve order, one process or one gang at a time. An item that cannot be placed is
//! skipped for the rest of the round, and its reason is stored.

use crate::{
    gang_placement,
    resource_vec::scale,
    round_state::{RoundState, WaitReason},
    serve_order::ServeOrder,
};

/// Places work until every work item is placed or skipped.
pub(crate) fn run(round: &mut RoundState) {
    round.nodes.sort();
    let mut serve_order = ServeOrder::new(round);
    while let Some(app) = serve_order.next_application(round) {
        serve(round, &mut serve_order, app);
        serve_order.update(round, app);
    }
}

/// Tries to place one process or one gang of the application.
fn serve(round: &mut RoundState, serve_order: &mut ServeOrder, app: usize) {
    let (Some(item), Ok(queue)) = (round.next_item(app), round.apps[app].queue.clone()) else {
        return;
    };
    if let Some(until) = round.carried.backing_off.get(round.apps[app].name) {
        let until = *until;
        return skip_app(round, app, WaitReason::BackingOff { until });
    }
    if let Err(reason) = round.may_run(app) {
        return skip_app(round, app, reason);
    }
    if round.items[item].missing_gang_processes() > 0 {
        let first_new = round.placed.len();
        if let Err(reason) = gang_placement::place(round, item, None) {
            for part in round.open_gang_parts(item) {
                skip_item(round, serve_order, part, queue, reason.clone());
            }
            return;
        }
        for index in first_new..round.placed.len() {
            let vector = round.vector(round.placed[index].item).clone();
            serve_order.reduce_pending(round, queue, &vector);
        }
        return;
    }
    match round.find_placement(item) {
        Ok(node) => {
            round.place(item, node);
            let vector = round.vector(item).clone();
            serve_order.reduce_pending(round, queue, &vector);
        }
        Err(reason) => {
            let has_no_node = reason == WaitReason::NoNode;
            skip_item(round, serve_order, item, queue, reason);
            if has_no_node {
                count_failure(round, app, queue);
            }
        }
    }
}

/// Skips the work item for the rest of the round.
fn skip_item(
    round: &mut RoundState,
    serve_order: &mut ServeOrder,
    item: usize,
    queue: usize,
    reason: WaitReason,
) {
    let missing_resources = scale(round.vector(item), round.items[item].missing());
    serve_order.reduce_pending(round, queue, &missing_resources);
    round.items[item].wait_reason = Some(reason);
    round.skipped.push(item);
}

/// Skips all remaining items of the application.
fn skip_app(round: &mut RoundState, app: usize, reason: WaitReason) {
    round.apps[app].wait_reason = Some(reason);
}

/// Counts a failed placement of an application. After `backoff_asks` of them the application is
/// not tried again until its back-off ends.
fn count_failure(round: &mut RoundState, app: usize, queue: usize) {
    let settings = round.tree.entries[queue].settings;
    let app_state = &mut round.apps[app];
    app_state.failed_placements += 1;
    if settings.backoff_asks > 0 && app_state.failed_placements >= settings.backoff_asks {
        let until = round.snapshot.now.plus_ms(settings.backoff_ms);
        round
            .carried
            .backing_off
            .insert(app_state.name.to_owned(), until);
        app_state.wait_reason = Some(WaitReason::BackingOff { until });
    }
}
