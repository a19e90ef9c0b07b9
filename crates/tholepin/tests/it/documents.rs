//! Pages for people: what they show is what the program prints.
//!
//! `UPDATE_DOCS=1 cargo test -p tholepin --test it -- documents` draws the pictures anew.

use std::path::{Path, PathBuf};

use super::{Installed, run_in};

/// A fenced block of a page.
pub(super) struct Block {
    /// The word behind the fence; empty if there is none.
    pub(super) language: String,
    /// The lines in between.
    pub(super) text: String,
}

/// The pages that show outputs of commands which need no cluster.
const PAGES: [&str; 2] = ["README.md", "docs/simulate.md"];
/// Pictures, each with the preset it shows.
const PICTURES: [(&str, &str); 2] =
    [("small", "docs/simulate.svg"), ("ci-inference", "docs/simulate-ci-inference.svg")];

#[test]
fn outputs_of_simulate_are_those_of_the_program() {
    let installed = Installed::under("tholepin");
    for page in PAGES {
        let text = read(page);
        let mut shown = 0;
        for block in blocks(&text) {
            let Some(rest) = block.text.strip_prefix("$ tholepin ") else { continue };
            let (words, wanted) = rest.split_once('\n').unwrap();
            let (code, stdout, stderr) = run_in(&installed.program, words, &[]);
            assert_eq!(code, 0, "{page}: {words}: {stderr}");
            assert!(stdout.starts_with(wanted), "{page}: {words} prints\n{stdout}");
            shown += 1;
        }
        assert!(shown > 0, "{page} shows no output");
    }
}

#[test]
fn the_pictures_are_those_of_the_program() {
    let installed = Installed::under("tholepin");
    for (preset, picture) in PICTURES {
        let drawn = installed.program.with_file_name("drawn.svg");
        let words = format!("simulate --preset {preset} --chart {}", drawn.display());
        let (code, _, stderr) = run_in(&installed.program, &words, &[]);
        assert_eq!(code, 0, "{stderr}");
        let drawn = std::fs::read_to_string(drawn).unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path(picture), &drawn).unwrap();
        }
        assert!(read(picture) == drawn, "{picture} is stale");
    }
}

#[test]
fn pages_on_the_way_to_an_installation_have_the_pod_to_try() {
    for page in ["README.md", "docs/quick-start.md", "docs/deployer.md", "docs/operator-install.md"] {
        let text = read(page);
        assert!(text.contains(&deployer::first_pod::manifest("topo-aware-scheduler")), "{page}: {text}");
    }
}

/// Sizes and times have one place. Those of the Go plugin were measured elsewhere, as the README says.
#[test]
fn figures_of_the_readme_are_those_of_the_page_of_figures() {
    let (readme, figures) = (read("README.md"), read("docs/figures.md"));
    let table = readme.lines().skip_while(|line| !line.starts_with("| | kube-scheduler"));
    let mut numbers = 0;
    for row in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        for text in [cells[1], cells[4]].iter().flat_map(|cell| cell.split_whitespace()) {
            if text.parse::<f64>().is_ok() {
                numbers += 1;
                assert!(figures.contains(&format!(" {text} ")), "{row}: {text} is not in docs/figures.md");
            }
        }
    }
    assert!(numbers > 10, "{numbers}");
}

fn path(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)
}

/// The text of a page, by its path in the repository.
pub(super) fn read(page: &str) -> String {
    std::fs::read_to_string(path(page)).unwrap()
}

/// The fenced blocks of a page.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block { language: language.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    blocks
}
