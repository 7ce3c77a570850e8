//! `hayward accounts`: the numbers of users, from which agents compute accounts.

use hayward_job_converter_api::accounts::{AccountList, AccountView};
use hayward_vocabulary::UserName;
use hayward_vocabulary::launch::{FIRST_USER_ID, OWN_USER_IDS, USER_IDS};
use serde_json::{Value, json};

use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::{Renderer, Table};

const ROUTE: &str = "/v1/accounts";
const PAGES: PageFields = PageFields {
    list: "accounts",
    next: "next_cursor",
};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Retire the number of a user without live work
    #[command(after_help = FORGET_EXAMPLE)]
    Forget(ForgetArguments),
}

const FORGET_EXAMPLE: &str = "\
Example, for a user who left:
  hayward accounts forget ada

Files of the user on the nodes keep their owner. No other user gets the number.";

#[derive(Debug, Clone, clap::Args)]
pub struct ForgetArguments {
    /// Name of the user.
    #[arg(value_name = "USER")]
    pub name: UserName,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        None => list(&session).await,
        Some(Command::Forget(forget)) => self::forget(&session, &forget.name).await,
    }
}

async fn forget(session: &Session, user: &UserName) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::Operator)?;
    client
        .delete::<Option<Value>>(&format!("{ROUTE}/{user}"))
        .await?;
    session
        .out
        .print_response(json!({ "forgotten": user }), |_: &Value, _| {
            format!("{user} is forgotten, and the number is never given again\n")
        })
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::Operator)?;
    let response = pages::read_all(&client, ROUTE, PAGES).await?;
    session
        .out
        .print_response(response, |list: &AccountList, renderer| {
            render_table(&list.accounts, renderer)
        })
}

fn render_table(all: &[AccountView], renderer: &Renderer) -> String {
    if all.is_empty() {
        return "no user has a number\n".to_owned();
    }
    let mut table = Table::new(["user", "number", "uid"]).align_right(&[1, 2]);
    for view in all {
        table.push_row([
            (&view.user).into(),
            view.number.into(),
            default_uid(view.number).into(),
        ]);
    }
    table.render(renderer)
}

/// Returns the uid on nodes with the default range, where there is no system user of the name.
fn default_uid(number: u32) -> String {
    if number < USER_IDS - OWN_USER_IDS {
        (FIRST_USER_ID + number).to_string()
    } else {
        "none".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_in_the_range_and_never_one_of_hayward() {
        assert_eq!(default_uid(0), "1900000000");
        assert_eq!(default_uid(65_279), "1900065279");
        assert_eq!(default_uid(65_280), "none");
    }
}
