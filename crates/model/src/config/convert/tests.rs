use super::*;
use document::diagnostic::Invalid;

fn converted(text: &str) -> ConvertedDocument {
    document(text, "f.yaml").unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

/// The text of a conversion, and that converting it again changes nothing.
fn text(text: &str) -> String {
    let first = converted(text);
    let again = converted(&first.text);
    assert_eq!((&again.text, again.changes.len()), (&first.text, 0));
    first.text
}

#[test]
fn a_document_of_ours_stays_as_it_is() {
    let text = "# node\nos: {hostname: a}  # first\n\ninstall:\n    mode: create\n    forceEfi:\n";
    let text = text.replace("    forceEfi:\n", "");
    let same = converted(&text);
    assert_eq!((same.text, same.changes), (text, vec![]));
}

#[test]
fn what_says_nothing_is_dropped_with_the_reason() {
    let text = text(
        "token: 9c41d7e05b6f4a3280de # theirs\nserverurl: \"\"\nos:\n  # keys\n  sshauthorizedkeys: []\ninstall:\n  \
         mode: create\n  managementinterface: {interfaces: [{name: ens5, hwaddr: \"\"}], defaultroute: true}\n  \
         forcembr: false\nrancherversion: v2.9.0\n",
    );
    assert_eq!(
        text,
        r#"token: 9c41d7e05b6f4a3280de # theirs
# dropped: `serverurl`: the key has no value, so it is ignored
os:
  # keys
  ssh_authorized_keys: [] # was `sshauthorizedkeys`
install:
  mode: create
  management_interface: # was `managementinterface`
    interfaces:
      - name: ens5
        # dropped: `hwaddr`: the key has no value, so it is ignored
    # dropped: `defaultroute` has no effect: the default route always goes over this network
  # dropped: `forcembr` has no effect: disks always get a GUID partition table, from which BIOS boots too;
  #   leave the key out
# dropped: `rancherversion` has no effect: versions are those of the image; choose them in the image
#   definition
"#
    );
}

#[test]
fn networks_of_the_first_schemes_are_those_of_today() {
    let text = text(
        "os: {hostname: a}\ninstall:\n  mode: create\n  networks:\n    harvester-mgmt:\n      interfaces:\n        - name: ens5\n      \
         default_route: true\n      method: dhcp\n    harvester-vlan: {interfaces: [{name: ens6}], method: none}\n  vip: 192.0.2.20\n",
    );
    assert_eq!(
        text,
        r#"os: {hostname: a}
install:
  mode: create
  # changed: `networks` of Harvester v0.2 to v1.0 is `install.management_interface` today
  management_interface:
    interfaces:
      - name: ens5
    # dropped: `default_route` has no effect: the default route always goes over this network
    method: dhcp
  # changed: `networks` of Harvester v0.2 to v1.0 is `install.networks` today
  networks:
    - name: vlan
      interfaces:
        - name: ens6
      method: none
  vip: 192.0.2.20
"#
    );
}

#[test]
fn a_script_of_ipxe_is_a_document() {
    let script = "#!ipxe\nset base http://192.0.2.5/h\nkernel ${base}/vmlinuz initrd=initrd ip=dhcp net.ifnames=1 \\\n  \
                  rd.cos.disable root=live:${base}/rootfs.squashfs console=tty1 harvester.install.automatic=true \
                  harvester.install.networks.harvester-mgmt.interfaces=\"hwAddr:52:54:00:12:34:56,name:ens5\" \
                  harvester.install.networks.harvester-mgmt.interfaces=\"ens6\" \
                  harvester.install.networks.harvester-mgmt.method=dhcp \
                  harvester.install.config_url=${base}/create.yaml\ninitrd ${base}/initrd\nboot\n";
    let converted = command_line(script, "boot.ipxe").unwrap_or_else(|invalid| panic!("{invalid}"));
    let text = converted.text;
    for line in [
        "# changed: from a kernel command line; each parameter is a key of this document",
        "    - name: ens6",
        "      name: ens5",
        "  config_url: \"http://192.0.2.5/h/create.yaml\"",
        "#   nqrust.install.automatic=true",
    ] {
        assert!(text.lines().any(|found| found.contains(line.trim())), "{line}\n{text}");
    }
    assert!(text.contains("left out: `root`: its live system") && !text.contains("\n  automatic"), "{text}");
}

#[test]
fn stages_are_keys_of_the_operating_system() {
    let text = text(
        "name: Mine\nstages:\n  initramfs:\n    - hostname: node-1\n      modules: [kvm]\n      sysctl: {vm.swappiness: \"10\"}\n      \
         timesyncd: {NTP: 0.pool.ntp.org 1.pool.ntp.org}\n      commands: [systemctl restart x]\n      files:\n        - \
         path: /etc/motd\n          permissions: 420\n          content: |\n            a\n            b\n        - path: \
         /oem/x.yaml\n          content: a\n      authorized_keys:\n        rancher: [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ops\"]\n",
    );
    assert_eq!(
        text,
        r#"# changed: the stages of the system are said by keys of `os`
os:
  hostname: node-1
  modules:
    - kvm
  ntp_servers:
    - "0.pool.ntp.org"
    - "1.pool.ntp.org"
  ssh_authorized_keys:
    - "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ops"
  sysctls:
    vm.swappiness: "10"
  write_files:
    - path: /etc/motd
      permissions: "0644"
      content: |
        a
        b
# left out, and nothing here does the same: `commands`: no commands run at boot; files come from
#   `os.write_files`, services from `overlay` of an image definition
#   commands:
#     - systemctl restart x
# dropped: `/oem/x.yaml` is a file that the system or the cluster makes itself
"#
    );
}

#[test]
fn of_a_document_of_another_program_its_keys_say_where_they_would_do() {
    let text = "#cloud-config\nhostname: node-1\nruncmd: [ls]\n";
    let Invalid(mistakes) = document(text, "cloud.yaml").unwrap_err();
    let codes: Vec<_> =
        mistakes.iter().map(|mistake| (mistake.code, mistake.suggestion.as_deref())).collect();
    let expected = [("nothing-left", None), ("unknown-key", Some("os.hostname")), ("unknown-key", None)];
    assert_eq!(codes, expected, "{mistakes:?}");
}

#[test]
fn a_mistake_in_a_script_is_told_at_the_line_that_has_the_parameter() {
    let script = "#!ipxe\nset base tftp://192.0.2.1\nkernel ${base}/vmlinuz \\\n  ip=dhcp \\\n  \
                  harvester.install.configUrl=${base}/node.yaml \\\n  harvester.install.automatic=true\nboot\n";
    assert!(is_boot_line(script));
    let Invalid(mistakes) = command_line(script, "boot.ipxe").unwrap_err();
    assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [5], "{mistakes:?}");
    assert!(mistakes[0].message.contains("tftp://"), "{mistakes:?}");
}

#[test]
fn a_command_line_is_known_without_being_called_one_and_a_document_is_none() {
    for (text, is_line) in [
        ("console=ttyS1 harvester.install.mode=install harvester.os.password=x\n", true),
        ("#!ipxe\nboot\n", true),
        ("menuentry a {\n  linux (http,192.0.2.1)/vmlinuz ip=dhcp harvester.install.mode=join\n}\n", true),
        ("LABEL a\n  KERNEL vmlinuz\n  APPEND ip=dhcp harvester.install.automatic=true\n", true),
        ("LABEL a\n  KERNEL vmlinuz\n  APPEND quiet\n", false),
        ("os:\n  additional_kernel_arguments: linux harvester.install.mode=join\n", false),
        ("os: {hostname: a}\n", false),
        ("{\"os\": {\"hostname\": \"a\"}}\n", false),
        ("token: harvester.install.mode=create\nos:\n  hostname: a\n", false),
    ] {
        assert_eq!(is_boot_line(text), is_line, "{text}");
    }
}

#[test]
fn what_is_missing_and_stands_in_a_group_of_another_product_is_named_there() {
    let text = "os: {hostname: a, password: correct horse}\ninstall: {automatic: true, device: /dev/vda}\nharvester:\n  \
                token: 1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d\n  vip: 192.0.2.10\n";
    let told = document(text, "f").unwrap_err().0;
    let group = told.iter().find(|one| one.code == "unknown-key").expect("the group is named");
    assert!(
        group.line == 3 && group.message.contains("`token`") && group.message.contains("`vip`"),
        "{group:?}"
    );
    assert!(told.iter().any(|one| one.code == "missing-value"));
    // A document that lacks nothing is converted without it, and the group is left out.
    let whole = text.replace(
        "install: {",
        "token: 1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d\ninstall: {vip: 192.0.2.10, ",
    );
    assert!(document(&whole, "f").unwrap().text.contains("left out"));
}
