//! Reads settings in layers, weakest first: defaults, file, environment, flags. Checks the names
//! and values of each layer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value};

use super::{SettingsStruct, help, names};

/// The result of reading the settings.
#[derive(Debug)]
pub enum Outcome<T> {
    Settings(T),
    /// Text that `--help` or `--version` requested.
    Text(String),
}

/// OpenTelemetry variables that set one of our settings. Our own setting wins if both are set.
const OTEL_VARIABLES: [(&str, &str); 1] = [("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint")];

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
    let (config, values) = match parse_flags(args, &layers.known)? {
        Flags::Help => return Ok(Outcome::Text(help::help_text::<T>(service)?)),
        Flags::Version => {
            let version = env!("CARGO_PKG_VERSION");
            return Ok(Outcome::Text(format!("hayward-{service} {version}\n")));
        }
        Flags::Set { config, values } => (config, values),
    };
    let file = config.or_else(|| environment.get("HAYWARD_CONFIG").cloned());
    if let Some(file) = file {
        layers.apply_file(Path::new(&file))?;
    }
    layers.apply_environment(service, environment)?;
    for (name, text) in values {
        let flag = format!("--{}", name.replace('_', "-"));
        layers.set_from_text(&flag, &name, &text)?;
    }
    Ok(Outcome::Settings(layers.finish()?))
}

/// The settings after the layers so far.
struct Layers<T> {
    values: Map<String, Value>,
    /// The defaults. Their names are the known names of this program.
    known: Map<String, Value>,
    settings_type: std::marker::PhantomData<T>,
}

impl<T: SettingsStruct> Layers<T> {
    fn defaults() -> anyhow::Result<Self> {
        let known = help::defaults::<T>()?;
        Ok(Self {
            values: known.clone(),
            known,
            settings_type: std::marker::PhantomData,
        })
    }

    fn apply_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let source = path.display();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {source}"))?;
        let table: Map<String, Value> =
            toml::from_str(&text).with_context(|| format!("{source} is not TOML"))?;
        for (name, value) in table {
            if !self.known.contains_key(&name) {
                if names::is_setting(&name) {
                    continue;
                }
                let others = names::settings().map(str::to_owned);
                let suggestion = names::suggestion(&name, self.known.keys().cloned().chain(others));
                bail!("{source}: there is no setting `{name}`{suggestion}");
            }
            let source = format!("{source}: `{name}`");
            self.try_set(&name, value).with_context(|| source)?;
        }
        Ok(())
    }

    fn apply_environment(
        &mut self,
        service: &str,
        environment: &BTreeMap<String, OsString>,
    ) -> anyhow::Result<()> {
        for (variable, setting) in OTEL_VARIABLES {
            let value = environment.get(variable).and_then(|value| value.to_str());
            if let Some(text) = value.filter(|text| !text.is_empty())
                && self.known.contains_key(setting)
            {
                self.set_from_text(variable, setting, text)?;
            }
        }
        let own_prefix = format!("{}_", names::to_variable(service));
        let (mut shared, mut private) = (Vec::new(), Vec::new());
        for (variable, value) in environment {
            let Some(suffix) = variable.strip_prefix(names::PREFIX) else {
                continue;
            };
            let own_suffix = suffix.strip_prefix(&own_prefix);
            if let Some(setting) = self.find_setting(suffix) {
                shared.push((variable, setting, value));
            } else if let Some(setting) = own_suffix.and_then(|suffix| self.find_setting(suffix)) {
                private.push((variable, setting, value));
            } else if !names::is_known(suffix) {
                let suggestion = names::suggestion(variable, self.known_variables(&own_prefix));
                bail!("{variable}: there is no such setting{suggestion}");
            }
        }
        // The variables of this service come last, so that they win.
        for (variable, setting, value) in shared.into_iter().chain(private) {
            let text = value
                .to_str()
                .with_context(|| format!("{variable} is not UTF-8"))?;
            if setting.is_in_file {
                let text = std::fs::read_to_string(text)
                    .with_context(|| format!("{variable}: cannot read {text}"))?;
                self.set_from_text(variable, &setting.name, text.trim_end())?;
            } else {
                self.set_from_text(variable, &setting.name, text)?;
            }
        }
        Ok(())
    }

    /// Returns every known variable, those of this program first.
    fn known_variables(&self, own_prefix: &str) -> impl Iterator<Item = String> {
        let prefix = names::PREFIX;
        let known = self.known.keys().map(|name| names::to_variable(name));
        let known = known.flat_map(move |name| {
            [
                format!("{prefix}{name}"),
                format!("{prefix}{own_prefix}{name}"),
            ]
        });
        known.chain(names::variables())
    }

    /// Returns the setting of a variable. A secret may be in a file, because others can read the
    /// environment of a process more easily.
    fn find_setting(&self, variable: &str) -> Option<VariableSetting> {
        let name = variable.to_ascii_lowercase();
        if self.known.contains_key(&name) {
            return Some(VariableSetting {
                name,
                is_in_file: false,
            });
        }
        let name = name.strip_suffix("_file")?;
        self.known.contains_key(name).then(|| VariableSetting {
            name: name.to_owned(),
            is_in_file: true,
        })
    }

    /// Sets a value from a text. The text can be a string, a number or a list, which the type of
    /// the setting decides.
    fn set_from_text(&mut self, source: &str, name: &str, text: &str) -> anyhow::Result<()> {
        let mut last_error = anyhow!("no value");
        for candidate in candidate_values(self.known.get(name), text) {
            match self.try_set(name, candidate) {
                Ok(()) => return Ok(()),
                Err(error) => last_error = error,
            }
        }
        Err(last_error.context(format!("{source} cannot be used")))
    }

    /// Sets a value if the settings can then be deserialized. Otherwise restores the previous one.
    fn try_set(&mut self, name: &str, value: Value) -> anyhow::Result<()> {
        let previous = self.values.insert(name.to_owned(), value);
        match serde_json::from_value::<T>(Value::Object(self.values.clone())) {
            Ok(_) => Ok(()),
            Err(error) => {
                if let Some(previous) = previous {
                    self.values.insert(name.to_owned(), previous);
                }
                Err(error.into())
            }
        }
    }

    fn finish(self) -> anyhow::Result<T> {
        Ok(serde_json::from_value(Value::Object(self.values))?)
    }
}

/// A setting that an environment variable sets.
struct VariableSetting {
    name: String,
    /// Whether the variable names a file with the value.
    is_in_file: bool,
}

/// Returns the possible values of a text, in the order in which they are tried.
fn candidate_values(default: Option<&Value>, text: &str) -> Vec<Value> {
    let string = Value::String(text.to_owned());
    let json = serde_json::from_str::<Value>(text).ok();
    let list = || Value::Array(text.split(',').map(|part| part.trim().into()).collect());
    match default {
        Some(Value::String(_)) => vec![string],
        Some(Value::Array(_)) => json.into_iter().chain([list()]).collect(),
        Some(Value::Null) if text.is_empty() => vec![Value::Null],
        // The type of an unset option is not known. Text is tried first, so that `5` can be a text.
        Some(Value::Null) | None => [string].into_iter().chain(json).chain([list()]).collect(),
        Some(_) => json.into_iter().chain([string]).collect(),
    }
}

/// Returns whether the argument is the value of a switch. A switch may also have no value.
fn is_bool_literal(argument: &OsString) -> bool {
    argument == "true" || argument == "false"
}

enum Flags {
    Help,
    Version,
    Set {
        config: Option<OsString>,
        values: Vec<(String, String)>,
    },
}

fn parse_flags(
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
            let flags = known
                .keys()
                .map(|name| format!("--{}", name.replace('_', "-")));
            let suggestion = names::suggestion(flag, flags);
            bail!("{flag}: there is no such flag{suggestion}; see --help")
        };
        let is_switch = matches!(known.get(&name), Some(Value::Bool(_)));
        let value = match value {
            Some(value) => value,
            None if is_switch && !args.peek().is_some_and(is_bool_literal) => "true".to_owned(),
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
