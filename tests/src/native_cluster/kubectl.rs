//! kubectl as the administrator of the cluster runs it: on the switch, at the virtual address.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{AdministratorNetwork, KubernetesRelease, Switch};
use crate::programs::{self, ProgramOutput};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Kubectl {
    network: AdministratorNetwork,
    program: PathBuf,
    access: PathBuf,
}

impl Kubectl {
    /// kubectl of `release` with the kubeconfig at `access`.
    #[must_use]
    pub fn new(switch: &Switch, release: &KubernetesRelease, access: PathBuf) -> Self {
        Self { network: switch.network(), program: release.program("kubectl"), access }
    }

    /// Runs it with these arguments, successful or not.
    pub fn call(&self, arguments: &[&str], input: &str) -> Result<ProgramOutput> {
        let mut command = self.like(&self.program);
        programs::run_with_input(command.args(arguments), input.as_bytes(), LIMIT)
    }

    /// Another program that takes `--kubeconfig`, with the same network and access.
    #[must_use]
    pub fn like(&self, program: &Path) -> Command {
        let mut command = self.network.command(&program.display().to_string());
        command.arg("--kubeconfig").arg(&self.access).env("HOME", "/nonexistent");
        command
    }

    /// Writes a ConfigMap of this name, as a client that gives up after two seconds.
    pub fn write(&self, name: &str) -> Result<ProgramOutput> {
        let content = format!("--from-literal=written={name}");
        self.call(&["create", "configmap", name, &content, "--request-timeout=2s"], "")
    }

    /// The output of a call, which has to succeed.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.call(arguments, "")?.success(&format!("kubectl {}", arguments.join(" ")))
    }

    /// An object, or a list of objects.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let all: Vec<&str> =
            ["get", "--output", "json"].into_iter().chain(arguments.iter().copied()).collect();
        let told = self.call(&all, "")?;
        let words =
            || format!("kubectl {} ended with {} and said {:?}", all.join(" "), told.code, told.said());
        serde_json::from_str(&told.stdout).with_context(words)
    }

    pub fn apply(&self, manifest: &Value) -> Result<()> {
        self.call(&["apply", "--filename", "-"], &manifest.to_string())?.success("kubectl apply").map(drop)
    }

    /// Applies a manifest that may be too large for the annotation in which kubectl would keep it.
    pub fn apply_on_server(&self, manifest: &Value) -> Result<()> {
        let words = ["apply", "--server-side", "--request-timeout=2s", "--filename", "-"];
        self.call(&words, &manifest.to_string())?.success("kubectl apply").map(drop)
    }

    /// The objects of a list, or none while the API does not answer.
    pub fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let listed = self.get(arguments).unwrap_or_default();
        listed["items"].as_array().cloned().unwrap_or_default()
    }

    /// The kubeconfig of the administrator.
    pub fn write_access(&self, content: &str) -> Result<()> {
        fs::write(&self.access, content).with_context(|| format!("writing {}", self.access.display()))
    }
}
