//! The `hayward` program as built with these tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the program. Builds the program only if it is older than the libraries of
/// these tests.
///
/// A test run of the whole workspace has built the program already. A call of cargo for this one
/// package would select other features and compile every service a second time.
pub fn hayward_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test_program = std::env::current_exe().expect("this program");
        let folder = test_program.parent().expect("a folder");
        // The test is target/<profile>/deps/<test>, or target/<profile>/examples/<example>, or
        // target/<profile>/<program>.
        let profile = match folder.file_name() {
            Some(name) if name == "deps" || name == "examples" => {
                folder.parent().expect("target/<profile>")
            }
            _ => folder,
        };
        let program = profile.join("hayward");
        if !is_up_to_date(&program, &profile.join("deps")) {
            build(profile);
        }
        program
    })
}

/// Returns whether the program exists, and neither a `hayward` library nor its `main.rs` is newer.
fn is_up_to_date(program: &Path, libraries: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/hayward/src/main.rs");
    let Some(program_modified) = modified(program) else {
        return false;
    };
    let entries = std::fs::read_dir(libraries).expect("the libraries these tests were built with");
    let library_files = entries.flatten().map(|it| it.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libhayward-") && name.ends_with(".rlib")
    });
    library_files
        .chain([source])
        .all(|path| modified(&path).is_some_and(|it| it <= program_modified))
}

fn build(profile: &Path) {
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--package",
        "hayward",
        "--bin",
        "hayward",
    ]);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    // Variables that cargo sets for the package under test are removed. A build script that reads
    // them would otherwise run again here and in the next test run.
    let prefixes = [
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_CRATE_",
        "CARGO_PRIMARY_",
    ];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            build.env_remove(&*name);
        }
    }
    let status = build
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo, to build the program under test");
    assert!(status.success(), "the program under test does not build");
}
