#version 150
// All light at once: the sun or floodlights, partly wrapped around, and the sky.
uniform sampler2D map_albedo; uniform vec3 materialparams; uniform vec3 materialbools;
in vec3 frag_normal; in vec2 frag_texcoord;
out vec4 stdout0;
void main(void) {
  vec4 base = texture(map_albedo, frag_texcoord, -0.7);
  if (base.a < 0.12) discard;
  vec3 n = normalize(frag_normal);
  float d = dot(n, ${sun});
  float s = d * 0.5 + 0.5;
  float lit = max(d, 0.0) * 0.65 + s * s * 0.35;
  vec3 light = ${sun_colour} * lit + ${ambient} * (0.75 + 0.25 * n.z) * (1.0 + materialparams.z);
  stdout0 = vec4(base.rgb * light, 1.0);
}
