//! The parts of `make bench`, and what they share.

use std::io::{Write, stderr};

use anyhow::{Context, Result};
use nqrust_tests::artifacts::Artifacts;

use crate::builds::BuildBench;
use crate::figure::Figure;
use crate::scale::Scale;
use crate::{
    boots, cluster, corpus, customize, default_medium, delta, first_build, fleet_page, images, install,
    kubernetes_programs, load, netboot, plan, ready, root, serve, signatures, update, validate,
};

/// A part that can be measured alone.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The step that requires root. Others skip the part.
    root_for: Option<&'static str>,
    /// When it is measured without being named.
    unnamed: PartSelection,
    figures: fn(&mut Bench) -> Result<Vec<Figure>>,
}

/// When a part is measured without being named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartSelection {
    /// At both scales.
    Always,
    /// Not in the short form: it starts a machine or a cluster, or downloads other versions of packages, which takes minutes with any
    /// input.
    Full,
    Never,
}

/// In the order in which they are measured.
pub(crate) const PARTS: [Part; 19] = [
    part("builds", PartSelection::Always, |bench| bench.builds()?.measure()),
    part("install", PartSelection::Full, |bench| {
        let medium = bench.builds()?.medium()?;
        install::measure(&medium, &bench.artifacts, bench.scale)
    }),
    part("images", PartSelection::Always, |bench| {
        bench.builds()?;
        let builds = bench.builds.as_ref().context("the builds of the benchmark")?;
        images::measure(builds, &bench.artifacts, bench.scale)
    }),
    part("validate", PartSelection::Always, |_| Ok(vec![validate::measure()?])),
    part("corpus", PartSelection::Always, |_| corpus::measure()),
    part("plan", PartSelection::Always, |_| Ok(vec![plan::measure()?])),
    part("signatures", PartSelection::Always, |_| signatures::measure()),
    part("customize", PartSelection::Always, |bench| customize::measure(&bench.artifacts, bench.scale)),
    part("serve", PartSelection::Always, |bench| {
        let mut figures = boots::measure(&bench.artifacts, bench.scale)?;
        figures.extend(serve::measure(&bench.artifacts, bench.scale)?);
        figures.extend(fleet_page::measure(&bench.artifacts, bench.scale)?);
        Ok(figures)
    }),
    part("load", PartSelection::Always, |bench| load::measure(&bench.artifacts, bench.scale)),
    part("netboot", PartSelection::Full, |bench| netboot::measure(&bench.artifacts)),
    part("delta", PartSelection::Full, |bench| delta::measure(&bench.artifacts))
        .needing_root("give the files of packages their owners"),
    part("cluster", PartSelection::Full, |bench| cluster::measure(&bench.artifacts))
        .needing_root("make control groups and devices"),
    part("default-medium", PartSelection::Full, |bench| default_medium::measure(&bench.artifacts)),
    part("ready", PartSelection::Full, |bench| ready::measure(&bench.artifacts)),
    part("root", PartSelection::Full, |bench| root::measure(&bench.artifacts)),
    part("update", PartSelection::Full, |bench| update::measure(&bench.artifacts)),
    part("first-build", PartSelection::Never, |bench| first_build::measure(&bench.artifacts))
        .needing_root("run live-build and mkosi"),
    part("kubernetes-programs", PartSelection::Never, |bench| {
        Ok(vec![kubernetes_programs::measure(&bench.artifacts)?])
    }),
];

const fn part(
    name: &'static str,
    unnamed: PartSelection,
    figures: fn(&mut Bench) -> Result<Vec<Figure>>,
) -> Part {
    Part { name, root_for: None, unnamed, figures }
}

impl Part {
    const fn needing_root(self, what: &'static str) -> Self {
        Self { root_for: Some(what), ..self }
    }

    pub(crate) fn runs_unnamed(&self, scale: Scale) -> bool {
        self.unnamed == PartSelection::Always || (self.unnamed == PartSelection::Full && scale == Scale::Full)
    }

    /// The figures of the part; none where only root could measure it, which is said.
    pub(crate) fn measure(&self, bench: &mut Bench) -> Result<Vec<Figure>> {
        if let Some(what) = self.root_for
            && !nix::unistd::geteuid().is_root()
        {
            writeln!(stderr(), "the part {} is left out: only root can {what}", self.name)
                .context("saying what is left out")?;
            return Ok(Vec::new());
        }
        (self.figures)(bench)
    }
}

/// State that the parts of a run share.
#[derive(Debug)]
pub(crate) struct Bench {
    artifacts: Artifacts,
    scale: Scale,
    /// The media that several parts need, once the first of them has built them.
    builds: Option<BuildBench>,
}

impl Bench {
    pub(crate) fn new(scale: Scale) -> Result<Self> {
        let artifacts = Artifacts::new(scale.pick("bench", "bench-short"))?;
        Ok(Self { artifacts, scale, builds: None })
    }

    fn builds(&mut self) -> Result<&mut BuildBench> {
        if self.builds.is_none() {
            self.builds = Some(BuildBench::new(&self.artifacts, self.scale)?);
        }
        self.builds.as_mut().context("the builds of the benchmark")
    }
}
