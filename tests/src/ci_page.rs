//! The pipelines of `docs/how-to/ci.md`, taken out of the page itself, so that what people copy is what was run.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_yaml::Value;

use crate::paths;

#[derive(Clone, Debug, PartialEq)]
pub enum Pipeline {
    /// The steps with commands of a GitHub job.
    GitHub(Vec<PipelineScript>),
    /// The jobs of GitLab CI in the order of their stages, and the variables of all of them.
    GitLab(Vec<PipelineScript>, Vec<(String, String)>),
    /// The containers of a Kubernetes Job in the order in which they run.
    Kubernetes(Vec<JobContainer>),
}

/// Commands that one shell runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineScript {
    pub name: String,
    pub text: String,
    /// The variables that the pipeline sets for it, from secrets.
    pub secrets: Vec<String>,
}

/// A container of the image, with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct JobContainer {
    pub name: String,
    pub args: Vec<String>,
    /// Where its volumes are mounted: name of the volume, path.
    pub mounts: Vec<(String, String)>,
}

pub fn page() -> Result<String> {
    let path = paths::workspace().join("docs/how-to/ci.md");
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// The YAML documents of a page, each of which has to be well-formed.
pub fn documents(page: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for block in page.split("\n```yaml\n").skip(1) {
        let (text, _) = block.split_once("\n```").context("a block of YAML that ends")?;
        let mut value: Value = serde_yaml::from_str(text)
            .with_context(|| format!("reading the block that begins:\n{text:.120}"))?;
        value.apply_merge()?;
        documents.push(value);
    }
    Ok(documents)
}

pub fn pipelines(page: &str) -> Result<Vec<Pipeline>> {
    documents(page)?.iter().map(Pipeline::of).collect()
}

impl Pipeline {
    fn of(document: &Value) -> Result<Self> {
        if document.get("jobs").is_some() {
            return github(document);
        }
        if document.get("stages").is_some() {
            return gitlab(document);
        }
        if document.get("kind").and_then(Value::as_str) == Some("Job") {
            return kubernetes(document);
        }
        bail!("a block of YAML is no pipeline that is known")
    }
}

fn github(document: &Value) -> Result<Pipeline> {
    let jobs = document["jobs"].as_mapping().context("jobs")?;
    let mut scripts = Vec::new();
    for step in jobs.values().flat_map(|job| job["steps"].as_sequence().into_iter().flatten()) {
        let Some(run) = step.get("run") else {
            ensure!(step.get("uses").is_some(), "a step has neither run nor uses: {step:?}");
            continue;
        };
        let env = step.get("env").and_then(Value::as_mapping);
        let secrets = env.into_iter().flatten().map(|(name, value)| {
            let from_secret = value.as_str().is_some_and(|value| value.starts_with("${{ secrets."));
            ensure!(from_secret, "{name:?} is no secret");
            text(name)
        });
        scripts.push(PipelineScript {
            name: text(&step["name"])?,
            text: text(run)?,
            secrets: secrets.collect::<Result<_>>()?,
        });
    }
    Ok(Pipeline::GitHub(scripts))
}

fn gitlab(document: &Value) -> Result<Pipeline> {
    let mut scripts = Vec::new();
    for stage in texts(&document["stages"])? {
        for (name, job) in document.as_mapping().context("jobs")? {
            if job.get("stage").and_then(Value::as_str) != Some(&stage) {
                continue;
            }
            let lines = texts(&job["script"])?;
            scripts.push(PipelineScript { name: text(name)?, text: lines.join("\n"), secrets: Vec::new() });
        }
    }
    let variables = document["variables"].as_mapping().context("variables")?;
    let variables = variables.iter().map(|(name, value)| Ok((text(name)?, text(value)?)));
    Ok(Pipeline::GitLab(scripts, variables.collect::<Result<_>>()?))
}

fn kubernetes(document: &Value) -> Result<Pipeline> {
    let pod = &document["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_sequence().context("volumes")?;
    let containers =
        ["initContainers", "containers"].iter().flat_map(|key| pod[*key].as_sequence().into_iter().flatten());
    let container = |container: &Value| {
        let mounts = container["volumeMounts"].as_sequence().context("volumeMounts")?;
        let mount = |mount: &Value| {
            let is_there = volumes.iter().any(|volume| volume["name"] == mount["name"]);
            ensure!(is_there, "there is no volume {:?}", mount["name"]);
            Ok((text(&mount["name"])?, text(&mount["mountPath"])?))
        };
        Ok(JobContainer {
            name: text(&container["name"])?,
            args: texts(&container["args"])?,
            mounts: mounts.iter().map(mount).collect::<Result<_>>()?,
        })
    };
    Ok(Pipeline::Kubernetes(containers.map(container).collect::<Result<_>>()?))
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("a text instead of {value:?}"))?.to_owned())
}

fn texts(value: &Value) -> Result<Vec<String>> {
    value.as_sequence().with_context(|| format!("a list instead of {value:?}"))?.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_well_formed_pipeline_of_each_kind_whose_commands_are_ours() {
        let found = pipelines(&page().unwrap()).unwrap();
        let [Pipeline::GitHub(github), Pipeline::GitLab(gitlab, _), Pipeline::Kubernetes(job)] = &found[..]
        else {
            panic!("{found:?}");
        };
        let of_scripts = |scripts: &[PipelineScript]| {
            scripts.iter().map(|script| format!("{}\n", script.text)).collect::<String>()
        };
        let of_job = job.iter().map(|container| format!("iso-builder {}\n", container.args.join(" ")));
        for text in [of_scripts(github), of_scripts(gitlab), of_job.collect()] {
            for command in ["check", "build", "verify", "customize"] {
                assert!(text.contains(&format!("iso-builder {command} ")), "{command}: {text}");
            }
            assert!(text.contains("--locked") && text.contains("--summary-file"), "{text}");
        }
    }

    #[test]
    fn images_are_named_by_the_builders_version_and_a_registry_of_nobody() {
        let page = page().unwrap();
        let name = format!("registry.example.com/nqrust/iso-builder:{}", env!("CARGO_PKG_VERSION"));
        let images: Vec<_> = page.split_whitespace().filter(|word| word.contains("/iso-builder:")).collect();
        assert!(images.len() > 5 && images.iter().all(|image| image.ends_with(&name)), "{images:?}");
    }

    #[test]
    fn text_that_is_not_yaml_or_not_a_pipeline_is_an_error() {
        assert!(documents("\n```yaml\na: [\n```\n").is_err());
        assert!(pipelines("\n```yaml\na: b\n```\n").is_err());
        assert!(pipelines("\n```yaml\njobs: {a: {steps: [{name: x}]}}\n```\n").is_err());
    }
}
