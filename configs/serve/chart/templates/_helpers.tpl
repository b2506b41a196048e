{{- define "nqrust-serve.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "nqrust-serve.fullname" -}}
{{- $name := include "nqrust-serve.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "nqrust-serve.selector" -}}
app.kubernetes.io/name: {{ include "nqrust-serve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nqrust-serve.labels" -}}
{{ include "nqrust-serve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "nqrust-serve.image" -}}
{{- $repository := required "set image.repository: the image of `make builder-image` in a registry of yours" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The directory or ISO that is served. */}}
{{- define "nqrust-serve.medium" -}}
{{- if .Values.medium.reference -}}
/medium/release
{{- else -}}
{{- printf "/medium/%s" .Values.medium.path | trimSuffix "/" -}}
{{- end -}}
{{- end -}}

{{/* The value of --state. */}}
{{- define "nqrust-serve.state" -}}
{{- with .Values.database -}}
{{- if .url -}}
{{- $options := list -}}
{{- if .passwordSecret }}{{ $options = append $options (printf "passfile=/run/nqrust/password/%s" .passwordKey) }}{{ end -}}
{{- if .authoritySecret }}{{ $options = append $options (printf "sslrootcert=/run/nqrust/authority/%s" .authorityKey) }}{{ end -}}
{{- .url -}}
{{- if $options }}{{ ternary "&" "?" (contains "?" .url) }}{{ join "&" $options }}{{ end -}}
{{- else -}}
/var/lib/nqrust/serve
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The directory with the file fleet-url. */}}
{{- define "nqrust-serve.stateDirectory" -}}
{{- ternary "/dev/shm/nqrust" "/var/lib/nqrust/serve" (ne .Values.database.url "") -}}
{{- end -}}

{{/* The limit for one client; nothing for the default of the program. */}}
{{- define "nqrust-serve.connectionsPerAddress" -}}
{{- if .Values.connectionsPerAddress -}}
{{- .Values.connectionsPerAddress -}}
{{- else if or .Values.ingress.enabled (eq .Values.service.type "ClusterIP") (ne .Values.service.externalTrafficPolicy "Local") -}}
{{- .Values.connections -}}
{{- end -}}
{{- end -}}

{{- define "nqrust-serve.keys" -}}
{{- range .Values.medium.keys }}
- {{ printf "--key=%s" . | quote }}
{{- end }}
{{- if .Values.medium.allowUnsigned }}
- --allow-unsigned
{{- end }}
{{- end -}}

{{- define "nqrust-serve.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .values.tls.secret }}
  scheme: HTTPS
  {{- end }}
{{- end -}}

{{/* Refuses values that do not fit together. */}}
{{- define "nqrust-serve.check" -}}
{{- $values := .Values -}}
{{- if not $values.database.url -}}
{{- if gt (int $values.replicas) 1 -}}
{{- fail (printf "replicas is %d, and several servers need a database that they share: set database.url (postgres://USER@HOST/DATABASE), or replicas: 1 with state.existingClaim" (int $values.replicas)) -}}
{{- else if not $values.state.existingClaim -}}
{{- fail "a server without a database needs a volume that lasts: set state.existingClaim, or database.url; without its state every machine would install again" -}}
{{- end -}}
{{- else if or (regexMatch "^[^/]*//[^/?@]*:[^/@]*@" $values.database.url) (regexMatch "[?&]password=" $values.database.url) -}}
{{- fail "database.url has a password, and everybody can read the arguments of a pod: remove it, and set database.passwordSecret" -}}
{{- else if not (regexMatch "^postgres(ql)?://[^/?]" $values.database.url) -}}
{{- fail "database.url is not an address of a database: expected postgres://USER@HOST/DATABASE" -}}
{{- else if regexMatch "[?&](passfile|sslrootcert)=" $values.database.url -}}
{{- fail "database.url names a file: remove passfile= and sslrootcert=, and set database.passwordSecret and database.authoritySecret" -}}
{{- else if $values.state.existingClaim -}}
{{- fail "database.url and state.existingClaim exclude each other: the state is in the database" -}}
{{- end -}}
{{- if not $values.baseUrl -}}
{{- fail "set baseUrl: the URL at which machines reach the servers, such as http://boot.example.org" -}}
{{- end -}}
{{- if ne (not $values.medium.reference) (ne $values.medium.existingClaim "") -}}
{{- fail "set one of medium.reference (a release in a registry) and medium.existingClaim (a volume with one)" -}}
{{- end -}}
{{- if not (or $values.medium.keys $values.medium.allowUnsigned) -}}
{{- fail "set medium.keys: the second line of the file NAME.pub of the key that has signed the release; medium.allowUnsigned: true serves one without a signature" -}}
{{- end -}}
{{- if and $values.configurations.clusterFile (not $values.configurations.secrets) -}}
{{- fail "set configurations.secrets: the Secret that has the file of configurations.clusterFile" -}}
{{- end -}}
{{- if and $values.tls.secret (not (hasPrefix "https://" $values.baseUrl)) -}}
{{- fail (printf "baseUrl is %s, and servers with tls.secret speak HTTPS alone: begin it with https://" $values.baseUrl) -}}
{{- end -}}
{{- if and $values.metrics.serviceMonitor.enabled (not (or $values.metrics.serviceMonitor.tokenSecret $values.metrics.withoutToken)) -}}
{{- fail "set metrics.serviceMonitor.tokenSecret: the Secret with a token of the role read, or metrics.withoutToken: true" -}}
{{- end -}}
{{- end -}}
