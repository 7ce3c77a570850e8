//! `hayward prepare`: makes keys, tokens, certificates, database roles and schemas for a fleet of
//! separate processes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use hayward_service::auth::{Groups, orchestrator_subject};
use hayward_service::config::insecure_modes::unencrypted_database_warning;
use hayward_service::{Clock, Keys, Shutdown, SystemClock};
use hayward_vocabulary::{NodeName, UserName};

use crate::output::note;
use crate::prepare::server_certificates::{self, Server};
use crate::prepare::{self, certificate_authority};

#[derive(Debug, Clone, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct Arguments {
    /// Directory for keys and tokens; made with mode 0700.
    #[arg(long, value_name = "DIR")]
    pub keys: PathBuf,
    /// Address of the database, with an account that may create roles. Without it only keys and
    /// tokens are made.
    #[arg(
        long,
        env = "HAYWARD_ADMIN_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub admin_url: Option<String>,
    /// Make a token for the agent of this node. May be repeated.
    #[arg(long = "agent", value_name = "NODE")]
    pub agents: Vec<NodeName>,
    /// Make a token for this person. May be repeated.
    #[arg(long = "user", value_name = "NAME")]
    pub users: Vec<UserName>,
    /// Make a token for this person to read audit records, and nothing else. May be repeated.
    #[arg(long = "auditor", value_name = "NAME")]
    pub auditors: Vec<UserName>,
    /// Make a token for this program to read the metrics of services, and nothing else, as
    /// Prometheus does. May be repeated.
    #[arg(long = "scraper", value_name = "NAME")]
    pub scrapers: Vec<UserName>,
    /// Group of these people. Submitter lists, limits and placement rules of queues name groups.
    /// May be repeated. Without this flag, people stay in the groups of their last token.
    #[arg(
        long = "group",
        value_name = "NAME",
        requires = "users",
        conflicts_with = "no_groups"
    )]
    pub groups: Vec<String>,
    /// These people are in no group any more.
    #[arg(long, requires = "users")]
    pub no_groups: bool,
    /// Tenant of these people. They see names in their tenant, and only amounts of other tenants.
    /// Without this flag, people stay in their tenant.
    #[arg(long, value_name = "NAME", conflicts_with = "no_tenant")]
    pub tenant: Option<UserName>,
    /// These people are in no tenant any more.
    #[arg(long)]
    pub no_tenant: bool,
    /// Orchestrator in the tenant, which acts only for users of the tenant. May be repeated.
    #[arg(long = "tenant-orchestrator", value_name = "NAME")]
    pub tenant_orchestrators: Vec<UserName>,
    /// Further host name or address of the services, for their certificates. May be repeated.
    #[arg(long = "tls-name", value_name = "NAME")]
    pub tls_names: Vec<String>,
    /// Make a certificate for a program with this host name that is no part of Hayward, such as the
    /// database or a collector. An existing key stays. With a directory, a copy of the certificate
    /// is written there, and a Postgres of that name reloads the certificate. May be repeated.
    #[arg(long = "certificate", value_name = "NAME[=DIR]")]
    pub servers: Vec<Server>,
    /// Sign certificates with a new authority. The previous authority is still trusted.
    #[arg(long)]
    pub new_authority: bool,
    /// Sign tokens with a new key. Tokens signed with the previous key are still accepted, and
    /// tokens signed with older keys are not.
    #[arg(long)]
    pub new_issuer: bool,
    /// Continue to run, and renew tokens and certificates before they end. Running programs load
    /// the new ones by themselves.
    #[arg(long)]
    pub keep: bool,
}

/// Time after which all running services have read a new authority or public key.
const RELOAD_TIME: Duration = Duration::from_secs(5);

pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let sets_groups = arguments.no_groups || !arguments.groups.is_empty();
    let groups = sets_groups.then(|| Groups::new(arguments.groups.clone()));
    let groups = groups.transpose()?;
    if arguments.new_issuer {
        let keys = Keys::open(&arguments.keys)?;
        // Services must know the new public key before a token is signed with the new key.
        let issuer = keys.publish_new_key()?;
        tokio::time::sleep(RELOAD_TIME).await;
        keys.install(&issuer)?;
    }
    let keys = prepare::create_keys(&arguments.keys, &arguments.agents)?;
    if arguments.new_authority {
        certificate_authority::replace_authority(&keys)?;
        tokio::time::sleep(RELOAD_TIME).await;
    }
    renew_certificates(&keys, &arguments)?;
    if arguments.new_issuer {
        // This call renews all tokens, also those of people whose names are not in the arguments.
        prepare::renew_all(&keys)?;
    }
    set_tenants(&keys, &arguments)?;
    for user in &arguments.users {
        match &groups {
            Some(groups) => {
                prepare::create_user_token_with_groups(&keys, user.as_str(), groups.clone())?
            }
            None => prepare::create_user_token(&keys, user.as_str())?,
        };
    }
    for name in &arguments.auditors {
        prepare::create_auditor_token(&keys, name.as_str())?;
    }
    for name in &arguments.scrapers {
        prepare::create_scraper_token(&keys, name.as_str())?;
    }
    if let Some(url) = &arguments.admin_url {
        if let Some(warning) = unencrypted_database_warning(url) {
            note(&format!("services will refuse this: {warning}"));
        }
        prepare::set_up_database(&keys, url, false).await?;
        server_certificates::reload_certificate(url, &arguments.servers).await?;
    }
    println!("keys, tokens and roles are in {}", keys.dir().display());
    if arguments.keep {
        renew_until_shutdown(&keys, &arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}

fn set_tenants(keys: &Keys, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments {
        tenant,
        no_tenant,
        users,
        tenant_orchestrators,
        ..
    } = arguments;
    let tenant_given = *no_tenant || tenant.is_some();
    let has_subjects = !users.is_empty() || !tenant_orchestrators.is_empty();
    if tenant_given && !has_subjects {
        bail!("say who: --user NAME or --tenant-orchestrator NAME");
    }
    if !tenant_given && !tenant_orchestrators.is_empty() {
        bail!("say into which tenant: --tenant NAME or --no-tenant");
    }
    if tenant_given {
        let orchestrators = tenant_orchestrators.iter().map(orchestrator_subject);
        for name in users.iter().map(ToString::to_string).chain(orchestrators) {
            keys.set_tenant(&name, tenant.as_ref())?;
        }
    }
    Ok(())
}

fn renew_certificates(keys: &Keys, arguments: &Arguments) -> anyhow::Result<()> {
    certificate_authority::renew_certificates(keys, &arguments.tls_names)?;
    server_certificates::renew_certificates(keys, &arguments.servers)
}

async fn renew_until_shutdown(keys: &Keys, arguments: &Arguments) -> anyhow::Result<()> {
    let (shutdown, clock): (_, Arc<dyn Clock>) = (Shutdown::on_signals()?, Arc::new(SystemClock));
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            () = tokio::time::sleep(prepare::RENEWAL_CHECK) => {}
        }
        let renewed = prepare::renew(keys, &clock)?;
        if certificate_authority::is_renewal_due(keys.dir()) {
            renew_certificates(keys, arguments)?;
            println!("certificates are renewed");
            if let Some(url) = &arguments.admin_url
                && let Err(error) =
                    server_certificates::reload_certificate(url, &arguments.servers).await
            {
                // The database may be down. Its previous certificate is valid for weeks.
                note(&format!(
                    "the database did not read its certificate: {error:#}"
                ));
            }
        }
        if renewed > 0 {
            println!("{renewed} tokens are renewed");
        }
    }
}
