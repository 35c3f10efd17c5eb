//! Finds the shared object that takes the place of libibverbs.
//!
//! In order: `$ADVERB_LIB`; beside the executable and in `deps/` below it (a build tree: the newer of the two, because
//! cargo refreshes one or the other); `../lib/adverb/` and `../lib/` (an installation).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::errors::{Failure, Result};

/// The file name cargo gives it.
pub const LIBRARY: &str = "libverbs_provider.so";

/// The library for the executable `exe`; `chosen` is the value of `ADVERB_LIB`.
pub fn library(exe: &Path, chosen: Option<&OsStr>) -> Result<PathBuf> {
    if let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) {
        let path = Path::new(chosen);
        return match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(Failure::Usage(format!(
                "ADVERB_LIB: '{}' is not allowed; allowed: the path of {LIBRARY}",
                path.display()
            ))),
        };
    }
    let here = exe.parent().unwrap_or(Path::new("/"));
    let built = [here.join(LIBRARY), here.join("deps").join(LIBRARY)];
    let installed = [
        here.join("../lib/adverb").join(LIBRARY),
        here.join("../lib").join(LIBRARY),
    ];
    let found = built
        .iter()
        .filter(|path| path.is_file())
        .max_by_key(|path| modified(path))
        .or_else(|| installed.iter().find(|path| path.is_file()));
    match found.and_then(|path| path.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => Err(Failure::Machine(format!(
            "{LIBRARY} is neither in {} nor in ../lib/adverb; build it with `make build`, or name it in ADVERB_LIB",
            here.display()
        ))),
    }
}

fn modified(path: &Path) -> SystemTime {
    path.metadata()
        .and_then(|meta| meta.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        root
    }

    #[test]
    fn finds_an_installation() {
        let root = tree(&["bin/adverb", "lib/adverb/libverbs_provider.so"]);
        let found = library(&root.path().join("bin/adverb"), None).unwrap();
        assert_eq!(
            found,
            root.path()
                .join("lib/adverb/libverbs_provider.so")
                .canonicalize()
                .unwrap()
        );
    }

    #[test]
    fn takes_the_newer_of_a_build_tree() {
        let root = tree(&["adverb", "libverbs_provider.so", "deps/libverbs_provider.so"]);
        let old = fs::File::options()
            .write(true)
            .open(root.path().join("libverbs_provider.so"))
            .unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let found = library(&root.path().join("adverb"), None).unwrap();
        assert!(found.ends_with("deps/libverbs_provider.so"), "{found:?}");
    }

    #[test]
    fn a_missing_library_says_how_to_get_it() {
        let root = tree(&["adverb"]);
        let failure = library(&root.path().join("adverb"), None).unwrap_err();
        assert_eq!(failure.status(), 125);
        assert!(failure.to_string().contains("make build"), "{failure}");
    }

    #[test]
    fn the_variable_wins_and_is_checked() {
        let root = tree(&["adverb", "libverbs_provider.so", "other.so"]);
        let other = root.path().join("other.so");
        assert!(
            library(&root.path().join("adverb"), Some(other.as_os_str()))
                .unwrap()
                .ends_with("other.so")
        );
        let failure = library(&root.path().join("adverb"), Some(OsStr::new("/nowhere.so"))).unwrap_err();
        assert_eq!(failure.status(), 2);
    }
}
