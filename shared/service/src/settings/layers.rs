//! The layers of settings, weakest first, and the checks at each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What reading came to.
#[derive(Debug)]
pub enum Outcome<T> {
    Settings(T),
    /// Asked for with `--help` or `--version`.
    Text(String),
}

/// Services whose name may begin a variable.
const SERVICES: [&str; 7] = [
    "NODE_STATUS",
    "BLOCKLIST",
    "JOB_CONVERTER",
    "RM_SCHEDULER",
    "CONTAINER_MANAGER",
    "NODE_AGENT",
    "FLEET",
];

/// Variables that belong to other programs of a fleet and may stand in the same environment: the
/// agent, the command line, embedded Postgres, and the frame for whoever has none.
const ELSEWHERE: [&str; 34] = [
    "HAYWARD_CONFIG",
    "HAYWARD_URL",
    "HAYWARD_TOKEN",
    "HAYWARD_TOKEN_FILE",
    "HAYWARD_NODE",
    "HAYWARD_STATE",
    "HAYWARD_STATE_DIR",
    "HAYWARD_RUNTIME",
    "HAYWARD_MEMORY_BYTES",
    "HAYWARD_CPU_MILLI",
    "HAYWARD_CGROUP_ROOT",
    "HAYWARD_END_CONTAINERS_ON_EXIT",
    "HAYWARD_INTERNAL_END_WITH_PARENT",
    "HAYWARD_PG_BIN",
    "HAYWARD_PG_DATA",
    "HAYWARD_ADMIN_URL",
    "HAYWARD_VERSION",
    "HAYWARD_LISTEN",
    "HAYWARD_DATABASE_URL",
    "HAYWARD_DATABASE_URL_FILE",
    "HAYWARD_KEYS",
    "HAYWARD_ALLOW_INSECURE",
    "HAYWARD_CA_FILE",
    "HAYWARD_TLS_CERTIFICATE",
    "HAYWARD_TLS_KEY",
    "HAYWARD_REQUESTS_PER_SECOND",
    "HAYWARD_REQUESTS_AT_ONCE",
    "HAYWARD_STREAMS_AT_ONCE",
    "HAYWARD_ENROLMENT_SECRET_FILE",
    "HAYWARD_LEASE_MS",
    "HAYWARD_SCRAPE_LISTEN",
    "HAYWARD_OTLP_ENDPOINT",
    "HAYWARD_LOG_FORMAT",
    "HAYWARD_LOG_FILTER",
];

/// Reads settings without touching the process.
///
/// `HAYWARD_<SETTING>` is for whoever has that setting, and `HAYWARD_<SETTING>_FILE` names a file
/// that holds its value. `HAYWARD_<SERVICE>_<SETTING>` is for one
/// service and wins over the former, so that one environment can hold, say, the `listen` of each.
/// A variable of another service, or of another program of the fleet, is passed over; every other
/// unknown `HAYWARD_…` is an error.
///
/// # Errors
/// With the name of what is unknown or wrong, and where it was set.
pub fn read<T: Serialize + DeserializeOwned>(
    service: &str,
    args: impl Iterator<Item = OsString>,
    environment: &BTreeMap<String, OsString>,
) -> anyhow::Result<Outcome<T>> {
    let mut layers = Layers::<T>::defaults()?;
    let flags = match flags(args, &layers.known)? {
        Flags::Help => return Ok(Outcome::Text(layers.help(service))),
        Flags::Version => {
            let version = env!("CARGO_PKG_VERSION");
            return Ok(Outcome::Text(format!("hayward-{service} {version}\n")));
        }
        Flags::Set { config, values } => (config, values),
    };
    let file = flags
        .0
        .or_else(|| environment.get("HAYWARD_CONFIG").cloned());
    if let Some(file) = file {
        layers.file(Path::new(&file))?;
    }
    layers.environment(service, environment)?;
    for (name, text) in flags.1 {
        let flag = format!("--{}", name.replace('_', "-"));
        layers.set_text(&flag, &name, &text)?;
    }
    Ok(Outcome::Settings(layers.finish()?))
}

struct Layers<T> {
    values: Map<String, Value>,
    /// The defaults, whose names are all the names there are.
    known: Map<String, Value>,
    made: std::marker::PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned> Layers<T> {
    fn defaults() -> anyhow::Result<Self> {
        let default: T = serde_json::from_value(Value::Object(Map::new()))
            .context("every setting needs a default")?;
        let Value::Object(known) = serde_json::to_value(default)? else {
            bail!("settings are a struct with named fields");
        };
        Ok(Self {
            values: known.clone(),
            known,
            made: std::marker::PhantomData,
        })
    }

    fn file(&mut self, path: &Path) -> anyhow::Result<()> {
        let place = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {place}"))?;
        let table: Map<String, Value> =
            toml::from_str(&text).with_context(|| format!("{place} is not TOML"))?;
        for (name, value) in table {
            if !self.known.contains_key(&name) {
                bail!("{place}: there is no setting `{name}`");
            }
            let place = format!("{place}: `{name}`");
            self.try_set(&name, value).with_context(|| place)?;
        }
        Ok(())
    }

    fn environment(
        &mut self,
        service: &str,
        environment: &BTreeMap<String, OsString>,
    ) -> anyhow::Result<()> {
        let own = service.to_ascii_uppercase().replace('-', "_");
        let (mut shared, mut private) = (Vec::new(), Vec::new());
        for (variable, value) in environment {
            let Some(rest) = variable.strip_prefix("HAYWARD_") else {
                continue;
            };
            let mine = rest
                .strip_prefix(&own)
                .and_then(|tail| tail.strip_prefix('_'));
            if let Some(setting) = self.named(rest) {
                shared.push((variable, setting, value));
            } else if let Some(setting) = mine.and_then(|mine| self.named(mine)) {
                private.push((variable, setting, value));
            } else if !elsewhere(variable, rest, &own) {
                bail!("{variable}: there is no such setting");
            }
        }
        for (variable, (name, in_file), value) in shared.into_iter().chain(private) {
            let text = value
                .to_str()
                .with_context(|| format!("{variable} is not UTF-8"))?;
            if in_file {
                let text = std::fs::read_to_string(text)
                    .with_context(|| format!("{variable}: cannot read {text}"))?;
                self.set_text(variable, &name, text.trim_end())?;
            } else {
                self.set_text(variable, &name, text)?;
            }
        }
        Ok(())
    }

    /// The setting a variable means, and whether its value stands in a file: a secret in the
    /// environment is seen by more eyes than one in a file.
    fn named(&self, variable: &str) -> Option<(String, bool)> {
        let name = variable.to_ascii_lowercase();
        if self.known.contains_key(&name) {
            return Some((name, false));
        }
        let name = name.strip_suffix("_file")?;
        self.known
            .contains_key(name)
            .then(|| (name.to_owned(), true))
    }

    /// A text can mean a string, a number, a list; the setting decides which reading it takes.
    fn set_text(&mut self, place: &str, name: &str, text: &str) -> anyhow::Result<()> {
        let mut last = anyhow!("no value");
        for reading in readings(self.known.get(name), text) {
            match self.try_set(name, reading) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last.context(format!("{place} cannot be used")))
    }

    fn try_set(&mut self, name: &str, value: Value) -> anyhow::Result<()> {
        let before = self.values.insert(name.to_owned(), value);
        match serde_json::from_value::<T>(Value::Object(self.values.clone())) {
            Ok(_) => Ok(()),
            Err(error) => {
                if let Some(before) = before {
                    self.values.insert(name.to_owned(), before);
                }
                Err(error.into())
            }
        }
    }

    fn finish(self) -> anyhow::Result<T> {
        Ok(serde_json::from_value(Value::Object(self.values))?)
    }

    fn help(&self, service: &str) -> String {
        let own = service.to_ascii_uppercase().replace('-', "_");
        let mut text = format!(
            "hayward-{service} [--config FILE] [--SETTING VALUE]...\n\n\
             Stronger first: a flag, HAYWARD_{own}_SETTING, HAYWARD_SETTING, the TOML file\n\
             (--config or HAYWARD_CONFIG), the default. HAYWARD_SETTING_FILE names a file that\n\
             holds the value.\n\nSettings and their defaults:\n"
        );
        for (name, value) in &self.known {
            let default = match value {
                Value::Null => "none".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let flag = format!("--{}", name.replace('_', "-"));
            let variable = format!("HAYWARD_{}", name.to_ascii_uppercase());
            let _ = writeln!(text, "  {flag:<32} {variable:<36} {default}");
        }
        text
    }
}

fn elsewhere(variable: &str, rest: &str, own: &str) -> bool {
    if ELSEWHERE.contains(&variable) || rest.starts_with("TEST_") {
        return true;
    }
    SERVICES.iter().any(|service| {
        rest.strip_prefix(service).is_some_and(|tail| {
            // Of our own prefix only the address that our neighbours use is not a misspelling.
            tail.starts_with('_') && (*service != own || tail == "_URL")
        })
    })
}

/// The readings of a text in the order they are tried.
fn readings(default: Option<&Value>, text: &str) -> Vec<Value> {
    let plain = Value::String(text.to_owned());
    let json = serde_json::from_str::<Value>(text).ok();
    let list = || Value::Array(text.split(',').map(|part| part.trim().into()).collect());
    match default {
        Some(Value::String(_)) => vec![plain],
        Some(Value::Array(_)) => json.into_iter().chain([list()]).collect(),
        Some(Value::Null) if text.is_empty() => vec![Value::Null],
        // Nothing is known of an option that is not set: text first, or `5` would never be one.
        Some(Value::Null) | None => [plain].into_iter().chain(json).chain([list()]).collect(),
        Some(_) => json.into_iter().chain([plain]).collect(),
    }
}

enum Flags {
    Help,
    Version,
    Set {
        config: Option<OsString>,
        values: Vec<(String, String)>,
    },
}

fn flags(
    mut args: impl Iterator<Item = OsString>,
    known: &Map<String, Value>,
) -> anyhow::Result<Flags> {
    let (mut config, mut values) = (None, Vec::new());
    while let Some(arg) = args.next() {
        let arg = arg
            .into_string()
            .map_err(|arg| anyhow!("{} is not UTF-8", arg.display()))?;
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        match flag {
            "--help" | "-h" => return Ok(Flags::Help),
            "--version" | "-V" => return Ok(Flags::Version),
            _ => {}
        }
        let name = flag.strip_prefix("--").map(|name| name.replace('-', "_"));
        let name = name.filter(|name| name == "config" || known.contains_key(name));
        let Some(name) = name else {
            bail!("{flag}: there is no such flag; see --help")
        };
        let switch = matches!(known.get(&name), Some(Value::Bool(_)));
        let value = match value {
            Some(value) => value,
            None if switch => "true".to_owned(),
            None => {
                let next = args
                    .next()
                    .with_context(|| format!("{flag} needs a value"))?;
                next.into_string()
                    .map_err(|_| anyhow!("the value of {flag} is not UTF-8"))?
            }
        };
        if name == "config" {
            config = Some(value.into());
        } else {
            values.push((name, value));
        }
    }
    Ok(Flags::Set { config, values })
}
