//! Opens the output streams of a run with the rights of the user, before its program starts.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Stdio;

use hayward_job_converter_api::submission::FileMode;
use rustix::fs::OFlags;

use super::run_plan::{RunPlan, Stream};
use super::start_failure::describe_missing_directory;

/// Streams of a program that is about to start.
pub struct OpenStreams {
    pub stdout: Stdio,
    pub stderr: Stdio,
    /// Reads the streams whose last words are stored. `None` if both go elsewhere.
    pub reader: Option<PipeReader>,
    /// File with the last words, if there is no reader.
    pub file: Option<OutputFile>,
}

/// A file of output, and its length before the run.
pub struct OutputFile {
    file: File,
    pub start: u64,
}

impl OutputFile {
    /// Opens the file for reading. It is not opened by its name, because the program may have put
    /// another file or a pipe there.
    pub fn reopen(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Opens both streams. Returns a sentence for the user on failure.
pub fn open(plan: &RunPlan, node: &str) -> Result<OpenStreams, String> {
    let mut opener = Opener {
        plan,
        node,
        pipe: None,
        file: None,
    };
    let stdout = opener.open(&plan.stdout, "stdout")?;
    let stderr = match &plan.stderr {
        Some(stderr) => opener.open(stderr, "stderr")?,
        None => stdout.try_clone()?,
    };
    let reader = opener.pipe.map(|(reader, _)| reader);
    let file = opener.file.filter(|_| reader.is_none());
    Ok(OpenStreams {
        stdout: stdout.into_stdio(),
        stderr: stderr.into_stdio(),
        reader,
        file,
    })
}

struct Opener<'a> {
    plan: &'a RunPlan,
    node: &'a str,
    pipe: Option<(PipeReader, PipeWriter)>,
    file: Option<OutputFile>,
}

enum Opened {
    Pipe(PipeWriter),
    Null,
    File(File),
}

impl Opened {
    fn try_clone(&self) -> Result<Self, String> {
        let cloned = match self {
            Self::Pipe(writer) => writer.try_clone().map(Self::Pipe),
            Self::Null => Ok(Self::Null),
            Self::File(file) => file.try_clone().map(Self::File),
        };
        cloned.map_err(|error| format!("its output cannot be opened: {error}"))
    }

    fn into_stdio(self) -> Stdio {
        match self {
            Self::Pipe(writer) => writer.into(),
            Self::Null => Stdio::null(),
            Self::File(file) => file.into(),
        }
    }
}

impl Opener<'_> {
    fn open(&mut self, stream: &Stream, name: &str) -> Result<Opened, String> {
        let pipe_failed = |error: io::Error| format!("the pipe of {name} cannot be made: {error}");
        match stream {
            Stream::Discard => Ok(Opened::Null),
            Stream::Keep => {
                if self.pipe.is_none() {
                    self.pipe = Some(io::pipe().map_err(pipe_failed)?);
                }
                match &self.pipe {
                    Some((_, writer)) => writer.try_clone().map(Opened::Pipe).map_err(pipe_failed),
                    None => Ok(Opened::Null),
                }
            }
            Stream::File(path) => self.open_file(path, name).map(Opened::File),
        }
    }

    fn open_file(&mut self, path: &Path, name: &str) -> Result<File, String> {
        if let Some(parent) = path.parent()
            && self.plan.make_directories
        {
            let made = DirBuilder::new().recursive(true).mode(0o777).create(parent);
            made.map_err(|error| {
                let parent = parent.display();
                format!(
                    "the directory {parent} of {name} cannot be made on {}: {error}",
                    self.node
                )
            })?;
        }
        let (file, start) = open_regular(path, self.plan.file_mode).map_err(|error| {
            let missing =
                describe_missing_directory(path.parent(), &format!("of {name}"), self.node);
            missing.unwrap_or_else(|| {
                let path = path.display();
                format!(
                    "{path} of {name} cannot be opened on {}: {error}",
                    self.node
                )
            })
        })?;
        if self.file.is_none() {
            // Without a second handle, the task only has no last words.
            self.file = file.try_clone().ok().map(|file| OutputFile { file, start });
        }
        Ok(file)
    }
}

/// Opens a regular file. A pipe or a device is refused, and never waited for. Returns the length
/// that the file had.
fn open_regular(path: &Path, mode: FileMode) -> io::Result<(File, u64)> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .write(true)
        .append(mode == FileMode::Append)
        .create(true)
        .mode(0o666)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    match mode {
        FileMode::Append => Ok((file, metadata.len())),
        FileMode::Truncate => file.set_len(0).map(|()| (file, 0)),
    }
}
