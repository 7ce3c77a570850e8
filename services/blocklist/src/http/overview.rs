//! `GET /v1/blocklist`: all blocked targets and all nodes on trial.

use axum::extract::State;
use hayward_blocklist_api::{BLOCKS, BlockAction, BlockEntry, BlockKind, BlockOverview, BlockView};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::WorkId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::App;
use super::block_request::parse_scope;
use crate::model::parse_kind;
use crate::view::{Evacuations, find_evacuation, to_view};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Kind of the targets: `NODE` or `WORKER`.
    #[param(value_type = Option<BlockKind>, required = false, nullable = false, inline)]
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Action of the items, in any of its spellings.
    #[param(value_type = Option<BlockAction>, required = false, nullable = false, inline)]
    action: Option<String>,
    /// Scope of the items: `CLUSTER` or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// `workers` to list the workers of each node.
    #[param(required = false, nullable = false, pattern = "^workers$")]
    include: Option<String>,
}

enum ScopeFilter {
    Any,
    Only(Option<WorkId>),
}

/// Filter after validation.
struct ParsedFilter {
    kind: Option<BlockKind>,
    action: Option<BlockAction>,
    scope: ScopeFilter,
    include_workers: bool,
}

impl Filter {
    fn parse(&self) -> Result<ParsedFilter, Problem> {
        let mut problem = Problem::new(Code::BadRequest, "invalid query");
        let mut add_fault = |parameter: &str, detail: String| {
            problem = problem.clone().at(format!("/query/{parameter}"), detail);
        };
        let kind = self.kind.as_deref().map(parse_kind);
        if kind == Some(None) {
            add_fault("type", "must be NODE or WORKER".to_owned());
        }
        let action = self.action.as_deref();
        let action = action.map(|text| serde_json::from_value::<BlockAction>(text.into()));
        if let Some(Err(_)) = action {
            let detail = "must be MARK_BLOCKLISTED or MARK_BLOCKLISTED_AND_EVACUATE_TASKS";
            add_fault("action", detail.to_owned());
        }
        let scope = self.scope.as_deref().map(|text| parse_scope(Some(text)));
        if let Some(Err(detail)) = &scope {
            add_fault("scope", detail.clone());
        }
        let include_workers = match self.include.as_deref() {
            None => false,
            Some("workers") => true,
            Some(_) => {
                add_fault("include", "must be workers".to_owned());
                false
            }
        };
        if !problem.errors.is_empty() {
            return Err(problem);
        }
        Ok(ParsedFilter {
            kind: kind.flatten(),
            action: action.and_then(Result::ok),
            scope: scope
                .and_then(Result::ok)
                .map_or(ScopeFilter::Any, ScopeFilter::Only),
            include_workers,
        })
    }
}

impl ParsedFilter {
    fn matches(&self, entry: &BlockEntry) -> bool {
        self.kind.is_none_or(|kind| kind == entry.kind)
            && self.action.is_none_or(|action| action == entry.action)
            && match &self.scope {
                ScopeFilter::Any => true,
                ScopeFilter::Only(job) => *job == entry.job,
            }
    }

    fn to_view(&self, entry: BlockEntry, evacuations: &Evacuations, app: &App) -> BlockView {
        let remaining_workers =
            find_evacuation(&entry, evacuations).map(|evacuation| &evacuation.workers);
        let lists_workers = self.include_workers && entry.kind == BlockKind::Node;
        let workers = lists_workers.then(|| {
            let remaining_workers = remaining_workers.into_iter().flatten();
            remaining_workers.map(ToString::to_string).collect()
        });
        BlockView {
            workers,
            ..to_view(entry, evacuations, app.clock.now())
        }
    }
}

/// List all blocked targets and nodes on trial, each with its progress. Use `version` as `after` of
/// `/v1/blocklist/changes`.
#[utoipa::path(
    get, path = "/v1/blocklist", operation_id = "show_blocks", tag = "blocks",
    params(Filter),
    responses(
        (status = 200, description = "nodes and workers", body = BlockOverview),
    ),
)]
pub async fn show_blocks(
    State(app): State<App>,
    _caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<BlockOverview>, Problem> {
    let filter = filter.parse()?;
    app.publisher.readable()?;
    let (entries, version) = app
        .publisher
        .page::<BlockEntry>(BLOCKS, "", None, usize::MAX);
    let now = app.clock.now();
    let evacuations = app.context.evacuations.read();
    let entries_in_force = entries.into_iter().map(|(_, entry)| entry);
    let entries_in_force =
        entries_in_force.filter(|entry| entry.is_in_force(now) && filter.matches(entry));
    let (nodes, workers): (Vec<_>, Vec<_>) = entries_in_force
        .map(|entry| filter.to_view(entry, &evacuations, &app))
        .partition(|view| view.item.kind == BlockKind::Node);
    Ok(Json(BlockOverview {
        version,
        nodes,
        workers,
    }))
}
