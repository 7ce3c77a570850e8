//! The layers of settings, weakest first, and their checks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value};

use super::{SettingsStruct, described, names};

/// The result of reading the settings.
#[derive(Debug)]
pub enum Outcome<T> {
    Settings(T),
    /// Text that `--help` or `--version` requested.
    Text(String),
}

/// OpenTelemetry variables that set one of our settings. Our own setting wins if both are set.
const STANDARD: [(&str, &str); 1] = [("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint")];

/// Reads settings without side effects on the process.
///
/// `HAYWARD_<SETTING>` sets a setting of every program that has it. `HAYWARD_<SETTING>_FILE` names
/// a file that contains the value. `HAYWARD_<SERVICE>_<SETTING>` is for one service and wins over
/// the former, so that one environment can have a `listen` for each service.
///
/// One environment and one file serve all programs. Settings and variables of other programs are
/// ignored, and every other unknown name is an error ([`super::names`]).
///
/// # Errors
/// With the name and the source of an unknown or invalid setting, and the most similar known name.
pub fn read<T: SettingsStruct>(
    service: &str,
    args: impl Iterator<Item = OsString>,
    environment: &BTreeMap<String, OsString>,
) -> anyhow::Result<Outcome<T>> {
    let mut layers = Layers::<T>::defaults()?;
    let flags = match flags(args, &layers.known)? {
        Flags::Help => return Ok(Outcome::Text(described::help::<T>(service)?)),
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
    /// The defaults. Their names are the known names of this program.
    known: Map<String, Value>,
    made: std::marker::PhantomData<T>,
}

impl<T: SettingsStruct> Layers<T> {
    fn defaults() -> anyhow::Result<Self> {
        let known = described::defaults::<T>()?;
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
                if names::is_setting(&name) {
                    continue;
                }
                let others = names::settings().map(str::to_owned);
                let nearest = names::nearest(&name, self.known.keys().cloned().chain(others));
                bail!("{place}: there is no setting `{name}`{nearest}");
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
        for (variable, setting) in STANDARD {
            let value = environment.get(variable).and_then(|value| value.to_str());
            if let Some(text) = value.filter(|text| !text.is_empty())
                && self.known.contains_key(setting)
            {
                self.set_text(variable, setting, text)?;
            }
        }
        let own = format!("{}_", names::variable(service));
        let (mut shared, mut private) = (Vec::new(), Vec::new());
        for (variable, value) in environment {
            let Some(rest) = variable.strip_prefix(names::PREFIX) else {
                continue;
            };
            let mine = rest.strip_prefix(&own);
            if let Some(setting) = self.named(rest) {
                shared.push((variable, setting, value));
            } else if let Some(setting) = mine.and_then(|mine| self.named(mine)) {
                private.push((variable, setting, value));
            } else if !names::is_known(rest) {
                let nearest = names::nearest(variable, self.variables(&own));
                bail!("{variable}: there is no such setting{nearest}");
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

    /// Returns every known variable, those of this program first.
    fn variables(&self, own: &str) -> impl Iterator<Item = String> {
        let prefix = names::PREFIX;
        let known = self.known.keys().map(|name| names::variable(name));
        let known =
            known.flat_map(move |name| [format!("{prefix}{name}"), format!("{prefix}{own}{name}")]);
        known.chain(names::variables())
    }

    /// Returns the setting of a variable, and whether its value is in a file. A secret in the
    /// environment is easier for others to read than a secret in a file.
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

    /// Sets a value from a text. The text can be a string, a number or a list, which the type of
    /// the setting decides.
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
}

/// Returns the possible values of a text, in the order in which they are tried.
fn readings(default: Option<&Value>, text: &str) -> Vec<Value> {
    let plain = Value::String(text.to_owned());
    let json = serde_json::from_str::<Value>(text).ok();
    let list = || Value::Array(text.split(',').map(|part| part.trim().into()).collect());
    match default {
        Some(Value::String(_)) => vec![plain],
        Some(Value::Array(_)) => json.into_iter().chain([list()]).collect(),
        Some(Value::Null) if text.is_empty() => vec![Value::Null],
        // The type of an unset option is not known. Text is tried first, so that `5` can be a text.
        Some(Value::Null) | None => [plain].into_iter().chain(json).chain([list()]).collect(),
        Some(_) => json.into_iter().chain([plain]).collect(),
    }
}

/// Returns whether a switch is on. Its value may follow as a separate word.
fn is_switched(word: &OsString) -> bool {
    word == "true" || word == "false"
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
    args: impl Iterator<Item = OsString>,
    known: &Map<String, Value>,
) -> anyhow::Result<Flags> {
    let mut args = args.peekable();
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
            let all = known
                .keys()
                .map(|name| format!("--{}", name.replace('_', "-")));
            let nearest = names::nearest(flag, all);
            bail!("{flag}: there is no such flag{nearest}; see --help")
        };
        let switch = matches!(known.get(&name), Some(Value::Bool(_)));
        let value = match value {
            Some(value) => value,
            None if switch && !args.peek().is_some_and(is_switched) => "true".to_owned(),
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
